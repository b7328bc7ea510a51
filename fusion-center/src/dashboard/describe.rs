//! The description of the API that the API serves.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::ApiState;

/// `GET /api`.
pub async fn describe(State(state): State<ApiState>) -> Json<Value> {
    Json(json!({
        "about": "The fusion center of hyloc. Metres, seconds, radians unless a name says otherwise; times that end \
                  in _ns are nanoseconds since the Unix epoch; null is unknown.",
        "requests": requests(),
        "control": state.control.describe(),
        "events": { "fix": fix(), "status": status() },
    }))
}

fn requests() -> Value {
    json!({
        "GET /": "the page, which uses only this API",
        "GET /api": "this description",
        "GET /api/site": "base station, coverage area and IRSs with orientation and unambiguous half sector; positions have three \
                          coordinates where there is a height",
        "GET /api/summary": "fixes so far, error against the exact bound, latency per stage, ledger of every node",
        "GET /api/live": "server-sent events: 'fix' holds the latest fix, at most ten a second, and a hundred for all \
                          viewers together; 'status' holds nodes, counts and the server's time, twice a second; a slow reader misses events; \
                          'evicted' holds the reason why the stream ends: its slot was needed by another address",
        "GET /api/history": "the fixes of the last ten minutes in short, oldest first: window_s and fixes, evenly thinned to \
                             ?most=N (1200, at most 6000)",
        "GET /api/fixes.csv": "the fixes of the last ten minutes, at most 30 000 and fifty a second, as CSV",
        "GET /api/fixes.jsonl": "the same as JSON lines, as in /api/history",
        "GET /api/site.toml": "the site as a scenario file: what the fusion center knows, without targets and imperfections",
        "GET /api/likelihood": "log-likelihood ratio of a target over the coverage area for the latest frame, on a grid: frame, min_m, \
                                step_m, columns, rows, values row by row from the least y; at most two a second are computed; \
                                409 with the reason if there is none",
        "GET /api/events": "what happened, at most the latest 200: number, time_ns, kind (control, node, fix, clock, load, run) and text; \
                            ?after=N leaves out the first N",
        "GET /api/control": "whether anything may be changed; the state of simulator (motion, targets, power), backhaul (profile, links) \
                             and nodes, with what each may become",
        "POST /api/control/motion": "JSON {\"name\": MOTION}: the motion of all targets from the next coherent interval on; this and all following are answered with 403 unless started with --allow-control",
        "POST /api/control/targets": "JSON {\"count\": N}: the number of targets",
        "POST /api/control/power": "JSON {\"dbm\": P}: the transmit power, which estimators are not told",
        "POST /api/control/clock": "JSON {\"node\": L, \"step_ns\": S}: the clock of a node steps",
        "POST /api/control/profile": "JSON {\"name\": PROFILE}: all links of the backhaul get that profile",
        "POST /api/control/link": "JSON {\"name\": LINK, \"cut\": true or false}: cuts or restores a link of the backhaul",
        "POST /api/control/node": "JSON {\"index\": L, \"run\": true or false}: starts or kills the process of a node",
        "GET /metrics": "metrics for Prometheus, OpenMetrics text",
        "GET /health": "200 when the process serves, else 503 with the reason",
        "GET /ready": "200 when a fix could be made now, else 503 with all reasons",
    })
}

fn fix() -> Value {
    json!({
        "frame": "number of the frame",
        "status": "nominal, degraded, doubtful or unobservable",
        "position_m": "estimated position of the target: [x, y], or [x, y, z] where there is a height",
        "axes": "free coordinates of the position: xy in a flat coverage area, else xyz; null without a fix",
        "covariance_m2": "of its error over the axes, the upper triangle row by row: [xx, xy, yy], or [xx, xy, xz, yy, yz, zz]",
        "targets": "all targets of the frame, strongest first: position_m, covariance_m2, false_alarm_probability, unresolved",
        "targets_covariance_m2": "of the errors of all targets in their order, the upper triangle row by row; absent for fewer than two",
        "tracks": "targets that are followed: identity, position_m, velocity_m_s, covariance, existence, age_s, and where they apply \
                   coasting, merged_with, doubtful_identity; absent where one target only is looked for",
        "protection_level_m": "radius that contains the error with probability 0.999 given one undetected fault",
        "nodes": "indices of the nodes that reported",
        "paths": "number of paths received, of K^2",
        "missing": "paths [l, k] that were not received: sensed at IRS l, reflected by IRS k",
        "excluded": "what was excluded as faulty, in words",
        "cautions": "why the fix is not nominal, in words",
        "alternatives": "other positions of the target, most probable first: position_m, probability; absent if none",
        "angle_rad": "local angle at each IRS",
        "bearing_rad": "global bearing from each IRS",
        "delay_s": "refined delay of each path, by l, then k",
        "snr_db": "signal-to-noise ratio of each path as measured by its node, by l, then k",
        "method": "three-stage, direct, direct-frames or direct-targets; null without a fix",
        "velocity_m_per_frame": "only if several frames are combined: two or three coordinates as in position_m",
        "iterations": "of the joint solver",
        "clocks": "by node, absent where clocks are trusted: prior_ns and prior_deviation_ns of its offset before the frame, \
                   offset_ns and deviation_ns with it; stepped if the clock has stepped, at_edge if the offset is at the edge of \
                   what was searched",
        "clock_covariance_ns2": "of these offsets, the upper triangle row by row",
        "source": "simulated or replayed",
        "truth": "null unless a simulator has sent it: position_m, error_m, bound_rms_m, bound_m2 (covariance), nees, and \
                  clock_offset_ns by node where clocks are not trusted",
        "run": "random identity of the simulator's start; frame numbers restart with it",
        "timing": "time_ns of the fix; milliseconds per stage; wire_bytes of the reports behind the fix; emit, filter and wire by node, in the order of nodes",
    })
}

fn status() -> Value {
    json!({
        "now_ns": "the server's time",
        "last_fix_ns": "when the last fix was published",
        "last_event": "number of the latest entry of /api/events",
        "nodes": "by index: identity, connected, last_frame, last_report_ns, and paths by fate: sent = fused + late + \
                  duplicate + dropped + in_flight + unaccounted; where clocks are not trusted, clock: offset_ns, \
                  deviation_ns, rate_ppb, and stepped_frame, in which it was last found to have stepped",
        "counts": "frames offered, shed and waiting for a solver, age of the oldest of these, most and longest so far, \
                   whether the fusion center is overloaded; frames that too few nodes reported, reports refused",
        "fixes": "frames with a position",
        "nominal": "of these, nominal",
        "degraded": "of these, degraded",
        "doubtful": "of these, doubtful",
        "without_fix": "frames without one",
        "gap_db": "ratio of the mean squared error to the mean exact bound of the data behind each fix",
        "gap_db_interval": "95 % confidence interval: [low, high]",
        "nees": "mean normalised squared error; nees_expected is consistent",
        "nees_expected": "number of free coordinates: 2 in a flat coverage area, else 3",
        "nees_interval": "95 % confidence interval: [low, high]",
        "rms_error_m": "rms distance between fix and truth",
        "bound_rms_m": "rms error that the exact bound allows",
        "judged": "fixes whose truth is known, of which gap, NEES and errors are",
        "targets": "figures of several targets and their tracks as in the summary; null where there is one",
        "latency_ms": "quantiles per stage",
    })
}
