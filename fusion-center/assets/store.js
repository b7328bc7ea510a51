// The fixes of the last ten minutes in short: first those that the fusion center remembers, then those that come.

export const WINDOW_S = 600;

const worst = (values) => (values.length ? Math.max(...values) : 0);

// A fix as the history has it.
function short(fix) {
  const { timing, truth } = fix;
  return {
    time_ns: timing.time_ns, run: fix.run, frame: fix.frame, status: fix.status, paths: fix.paths,
    position_m: fix.position_m, error_m: truth?.error_m, bound_rms_m: truth?.bound_rms_m, bound_m2: truth?.bound_m2, nees: truth?.nees,
    stages_ms: [worst(timing.emit_ms), worst(timing.filter_ms), worst(timing.wire_ms), timing.assemble_ms, timing.angles_ms, timing.locate_ms],
    total_ms: timing.total_ms, wire: timing.nodes.map((node, i) => [node, timing.wire_ms[i]]),
    clock_offset_ns: fix.clocks?.map(({ offset_ns }) => offset_ns), true_clock_offset_ns: truth?.clock_offset_ns,
    axes: fix.axes,
  };
}

export class Store {
  constructor() {
    this.fixes = [];
  }

  put(fix) {
    fix.t = fix.time_ns / 1e6;
    const last = this.fixes.at(-1);
    // The same frame again: its truth came after it.
    if (last && last.frame === fix.frame && last.run === fix.run) this.fixes.pop();
    this.fixes.push(fix);
    while (this.fixes.length && fix.t - this.fixes[0].t > 1000 * WINDOW_S) this.fixes.shift();
  }

  seed(past) {
    past.forEach((fix) => this.put(fix));
  }

  take(fix) {
    this.put(short(fix));
  }

  // The last seconds, up to the latest fix.
  last(seconds) {
    // Where there is less, what there is, and at least ten seconds.
    const end = this.fixes.at(-1)?.t ?? 0, first = Math.min(this.fixes[0]?.t ?? end, end - 10000), from = Math.max(end - 1000 * seconds, first);
    return { from, to: end, fixes: this.fixes.filter(({ t }) => t >= from) };
  }
}
