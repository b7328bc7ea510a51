//! The files of `deploy/` agree with the processes: metrics of the Grafana dashboard, ports of the scrape file, ports that
//! compose publishes. These tests need no Docker engine.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use hyloc_tests::pipeline::Site;
use hyloc_tests::process::{Process, alone, eventually, http_get, skipped};
use hyloc_tests::prometheus::{self, Prometheus};
use serde_json::Value;

fn deploy(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All expressions of the dashboard, with the title of their panel.
fn expressions() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&deploy("observability/dashboard.json")).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            found.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    found
}

/// The words of an expression: names of metrics and labels, functions.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Names, and `label="value"` pairs, of samples in Prometheus' text format.
fn samples(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut names, mut labels) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let end = line.find(['{', ' ']).unwrap();
        names.insert(line[..end].to_owned());
        if let Some((inside, _)) = line[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            labels.extend(inside.split(',').map(str::to_owned));
        }
    }
    (names, labels)
}

/// A pipeline that has all metrics: an emulator before one of the nodes, two targets, and clocks that are not trusted.
struct Observed {
    site: Site,
    simulator: Process,
    others: Vec<Process>,
    /// Jobs of the scrape file with the addresses of their metrics.
    jobs: [(&'static str, Vec<SocketAddr>); 4],
}

impl Observed {
    fn start() -> Self {
        let site = Site::new();
        let shared = ["--targets", "2", "--set", "clocks.offset_ns=10", "--set", "clocks.prior_ns=20"];
        let fusion = site.fusion(&[&shared[..], &["--max-targets", "4"]].concat());
        let to_fusion = site.grpc.to_string();
        let flags =
            ["--listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
        let mut emulator =
            Process::start("hyloc", &[&["backhaul", "--fusion", &to_fusion], &flags[..]].concat());
        let emulated = emulator.started();
        let mut nodes =
            [site.node_over(emulated.grpc.unwrap(), "node-0", 0, &[]), site.node(1, &[]), site.node(2, &[])];
        let mut simulator = site.simulator(&[&shared[..], &["--frames", "0", "--rate", "10"]].concat());
        let jobs = [
            ("fusion-center", vec![site.http]),
            ("simulator", vec![simulator.started().http.unwrap()]),
            ("node", nodes.iter_mut().map(|node| node.started().http.unwrap()).collect()),
            ("emulator", vec![emulated.http.unwrap()]),
        ];
        site.until("fixes", |summary| summary["judged"].as_u64() >= Some(3));
        let others = nodes.into_iter().chain([emulator, fusion]).collect();
        Self { site, simulator, others, jobs }
    }

    fn stop(self) {
        self.simulator.stop();
        self.others.into_iter().for_each(|process| drop(process.stop()));
    }
}

/// The metrics of a pipeline with the emulator have every name, label and value that the dashboard queries.
#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let _alone = alone();
    let pipeline = Observed::start();
    let asked = pipeline.jobs.iter().flat_map(|(_, addresses)| addresses.clone());
    let (mut names, mut labels) = (BTreeSet::new(), BTreeSet::new());
    for address in asked {
        let (text, _) = eventually("metrics", || http_get(address, "/metrics"));
        let (more, with) = samples(&text);
        names.extend(more);
        labels.extend(with);
    }
    let mut metrics = BTreeSet::new();
    for (panel, expression) in expressions() {
        for name in words(&expression).filter(|word| word.starts_with("hyloc_")) {
            assert!(names.contains(name), "panel '{panel}': no process has a metric {name}");
            metrics.insert(name.to_owned());
        }
        // Selectors in braces and grouping labels; `job` and `instance` come from Prometheus.
        for selected in expression.split('{').skip(1).filter_map(|rest| rest.split_once('}')) {
            let told = labels.contains(selected.0) || selected.0 == "job=\"fusion-center\"";
            assert!(told, "panel '{panel}': no sample has {}", selected.0);
        }
        for grouped in expression.split("by (").skip(1).filter_map(|rest| rest.split_once(')')) {
            for label in words(grouped.0).filter(|label| *label != "instance") {
                let start = format!("{label}=");
                assert!(
                    labels.iter().any(|known| known.starts_with(&start)),
                    "panel '{panel}': no label {label}"
                );
            }
        }
    }
    println!("{} metrics in {} expressions", metrics.len(), expressions().len());
    assert!(metrics.len() >= 25, "{metrics:?}");
    pipeline.stop();
}

/// A real Prometheus scrapes a running pipeline: every expression of the dashboard has a value, and the rms error and its
/// bound are those of the summary.
#[test]
fn prometheus_evaluates_every_expression_of_the_dashboard() {
    let _alone = alone();
    if !prometheus::available() {
        skipped(
            "deploy::prometheus_evaluates_every_expression_of_the_dashboard",
            "no Prometheus is installed",
        );
        return;
    }
    let pipeline = Observed::start();
    let prometheus = Prometheus::start(&pipeline.jobs);
    for (panel, expression) in expressions() {
        let has_values = || {
            let values = prometheus.query(&expression);
            values.iter().any(|(_, value)| value.is_finite()).then_some(values)
        };
        eventually(&format!("panel '{panel}': a value of {expression}"), has_values);
    }
    let nodes = prometheus.query("hyloc_clock_deviation_seconds > 0");
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    let statuses = prometheus.query("sum by (status) (hyloc_fixes_total)");
    assert_eq!(statuses.len(), 4, "{statuses:?}");

    let Observed { site, simulator, others, .. } = pipeline;
    simulator.stop();
    // The last fixes are under way, and Prometheus looks once per second.
    let mean = |name: &str| {
        let found = prometheus.query(&format!("sqrt({name} / hyloc_fixes_judged_total)"));
        found.first().map(|(_, value)| *value)
    };
    let agrees = || {
        let summary = site.summary()?;
        let close = |key: &str, name: &str| Some((mean(name)? / summary[key].as_f64()? - 1.0).abs() < 1e-9);
        let error = close("rms_error_m", "hyloc_error_square_metres_total")?;
        let bound = close("bound_rms_m", "hyloc_bound_square_metres_total")?;
        (error && bound).then_some(())
    };
    eventually("the figures of Prometheus are those of the summary", agrees);
    let fixes = prometheus.query("sum(hyloc_fixes_total)")[0].1;
    let summary = site.summary().unwrap();
    let expected = ["fixes", "without_fix"].map(|key| summary[key].as_f64().unwrap());
    assert_eq!(fixes, expected.iter().sum::<f64>());
    others.into_iter().for_each(|process| drop(process.stop()));
}

/// Lines of one service in compose.yaml.
fn service<'a>(compose: &'a str, name: &str) -> Vec<&'a str> {
    let services = compose.split_once("\nservices:\n").unwrap().1.split_once("\nnetworks:\n").unwrap().0;
    let begin = format!("  {name}:");
    let lines = services.lines().skip_while(|line| *line != begin).skip(1);
    lines.take_while(|line| line.is_empty() || line.starts_with("   ")).collect()
}

/// Every job of the scrape file names a service of compose.yaml and the port that its settings there give to HTTP.
#[test]
fn the_scrape_file_has_the_ports_of_compose() {
    let (scrape, compose) = (deploy("observability/prometheus.yml"), deploy("compose.yaml"));
    let common = compose.split_once("\nservices:\n").unwrap().0;
    let mut jobs = 0;
    for job in scrape.split("job_name: ").skip(1) {
        let (name, rest) = job.split_once('\n').unwrap();
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let port = match rest.split_once("port: ") {
            Some((_, port)) => digits(port),
            None => digits(rest.split_once(&format!("\"{name}:")).expect("a target").1),
        };
        let lines = service(&compose, name);
        assert!(!lines.is_empty(), "job {name}: no such service");
        let listen = format!("_HTTP_LISTEN: 0.0.0.0:{port}");
        // Nodes share their settings, which stand above.
        let settings = lines.iter().any(|line| line.ends_with(&listen)) || {
            lines.iter().any(|line| line.contains("<<: *node")) && common.contains(&listen)
        };
        assert!(settings, "job {name}: its service does not listen on {port}");
        jobs += 1;
    }
    assert_eq!(jobs, 4);
}

/// The scenario that the settings of a service in compose.yaml give, with these variables.
fn scenario_of(compose: &str, name: &str, variables: &[(&str, &str)]) -> model::Scenario {
    let rendered = |text: &str| match text.strip_prefix("${").and_then(|text| text.strip_suffix('}')) {
        Some(variable) => {
            let (variable, default) = variable.split_once(":-").expect("a default");
            let set = variables.iter().find(|(name, _)| *name == variable);
            set.map_or(default, |(_, value)| *value).to_owned()
        }
        None => text.to_owned(),
    };
    let keys = service(compose, name).into_iter().filter_map(|line| line.trim().split_once(": "));
    let environment = keys
        .filter(|(key, _)| key.starts_with("HYLOC__"))
        .map(|(key, value)| (key.to_owned(), rendered(value)))
        .collect();
    settings::load_scenario(&settings::Layers {
        environment: Some(environment),
        ..settings::Layers::default()
    })
    .unwrap()
}

/// The variables of the clocks: the simulator knows the truth, the fusion center the prior alone, and both have one site.
#[test]
fn compose_sets_the_clocks() {
    let compose = deploy("compose.yaml");
    let both = |variables: &[(&str, &str)]| {
        ["simulator", "fusion-center"].map(|name| scenario_of(&compose, name, variables))
    };
    for scenario in both(&[]) {
        let offsets = model::ClockOffsets::new(&scenario);
        assert!((0..3).all(|l| offsets.offset_s(l, 1000) == 0.0) && scenario.clocks.prior_ns == 0.0);
    }
    let variables = [
        ("CLOCK_OFFSET_NS", "100"),
        ("CLOCK_DRIFT_PPB", "50.5"),
        ("CLOCK_STEP_NS", "-20"),
        ("CLOCK_STEP_NODE", "2"),
        ("CLOCK_STEP_FRAME", "150"),
    ];
    let [simulator, fusion] = both(&variables);
    let clocks = &simulator.clocks;
    assert_eq!((clocks.offset_ns, clocks.drift_ppb, clocks.prior_ns), (100.0, 50.5, 100.0));
    let step = clocks.step.unwrap();
    assert_eq!((step.node, step.frame, step.step_ns), (2, 150, -20.0));
    let prior = model::scenario::NodeClocks { prior_ns: 100.0, ..Default::default() };
    assert_eq!(fusion.clocks, prior, "no truth");
    let site = |scenario| proto::site::SharedSite::new(model::System::new(scenario).unwrap()).unwrap().sha256;
    assert_eq!(site(&simulator), site(&fusion));
    // Nodes have no scenario: the prior is part of the site that they get.
    assert_eq!(compose.matches("HYLOC__CLOCKS__").count(), 7);
    for (variable, _) in variables {
        assert!(deploy("README.md").contains(&format!("`{variable}`")), "{variable}");
    }
}

/// The target of compose walks: it is never farther from its last place than a person gets in a tenth of a second. Simulator and fusion
/// center read the same file, which may be another one.
#[test]
fn compose_shows_a_target_that_walks() {
    let compose = deploy("compose.yaml");
    for name in ["simulator", "fusion-center"] {
        let lines = service(&compose, name).join("\n");
        assert!(lines.contains("_SCENARIO: /etc/hyloc/scenario.toml"), "{name}");
        assert!(
            lines.contains("\"${SCENARIO:-./scenarios/walk.toml}:/etc/hyloc/scenario.toml:ro\""),
            "{name}"
        );
    }
    let scenario: model::Scenario = toml::from_str(&deploy("scenarios/walk.toml")).unwrap();
    let source = model::EchoSource::new(&scenario).unwrap();
    let steps_m = (0..500).map(|frame| (source.target_m(frame + 1) - source.target_m(frame)).norm());
    let longest_m = steps_m.fold(0.0, f64::max);
    assert!((0.05..0.5).contains(&longest_m), "{longest_m}");
    for variable in ["SCENARIO", "MAX_TARGETS"] {
        assert!(deploy("README.md").contains(&format!("`{variable}`")), "{variable}");
    }
}

/// Ports are published by the fusion center, and by Grafana for those who ask for it; on loopback unless told otherwise.
#[test]
fn compose_publishes_the_fusion_center_alone() {
    let compose = deploy("compose.yaml");
    let names = ["fusion-center", "simulator", "node", "node-impaired", "emulator", "prometheus", "grafana"];
    let mut mapped = 0;
    for name in names {
        let lines = service(&compose, name);
        let publishes = lines.iter().any(|line| line.trim() == "ports:");
        let on_request = lines.iter().any(|line| line.trim() == "profiles: [observability]");
        assert_eq!(publishes, name == "fusion-center" || name == "grafana", "{name}");
        assert_eq!(on_request, ["prometheus", "grafana"].contains(&name), "{name}");
        let ports = lines.iter().skip_while(|line| line.trim() != "ports:").skip(1);
        for port in ports.take_while(|line| line.trim().starts_with('-')) {
            assert!(port.trim().starts_with("- \"${PUBLISH:-127.0.0.1}:"), "{name}: {port}");
            mapped += 1;
        }
    }
    assert_eq!(mapped, 3);
    assert!(!compose.contains("network_mode") && !compose.contains("privileged"));
    assert_eq!(compose.matches("ports:").count(), 2, "all services are looked at");
}

/// Every service of compose.yaml and stack.yaml has limits for memory, processes and logs, no capabilities, and, if it is one of
/// ours, a root file system that cannot be written.
#[test]
fn containers_are_limited() {
    let compose = deploy("compose.yaml");
    let common = compose.split_once("\nservices:\n").unwrap().0;
    let anchor = |name: &str| {
        let rest = common.split_once(&format!(": &{name}\n")).unwrap().1;
        rest.split("\nx-").next().unwrap().to_owned()
    };
    let (bounds, shared, node) = (anchor("bounds"), anchor("service"), anchor("node"));
    for line in [
        "  cap_drop: [ALL]",
        "  security_opt: [\"no-new-privileges:true\"]",
        "  pids_limit: 256",
        "    driver: json-file",
        "    options: { max-size: 10m, max-file: \"3\" }",
    ] {
        assert!(bounds.lines().any(|known| known == line), "{line}");
    }
    assert!(shared.contains("<<: *bounds") && shared.contains("read_only: true"), "{shared}");
    assert!(shared.contains("mem_limit: ${NODE_MEMORY:-512m}") && node.contains("<<: *service"), "{shared}");
    for name in ["fusion-center", "simulator", "node", "node-impaired", "emulator"] {
        let lines = service(&compose, name);
        let inherits = |line: &&str| ["<<: *service", "<<: *node"].contains(&line.trim());
        assert!(lines.iter().any(inherits), "{name}");
    }
    for name in ["prometheus", "grafana"] {
        let lines = service(&compose, name).join("\n");
        assert!(lines.contains("<<: *bounds") && lines.contains("mem_limit: 1g"), "{name}");
    }
    for overridden in ["cap_add", "read_only: false", "privileged"] {
        assert!(!compose.contains(overridden), "{overridden}");
    }

    let stack = deploy("stack.yaml");
    let (common, services) = stack.split_once("\nservices:\n").unwrap();
    for line in ["  read_only: true", "  cap_drop: [ALL]", "    options: { max-size: 10m, max-file: \"3\" }"]
    {
        assert!(common.lines().any(|known| known == line), "{line}");
    }
    assert!(common.contains("limits: { memory: \"${NODE_MEMORY:-512M}\", pids: 256 }"), "{common}");
    for name in ["fusion-center", "simulator", "node"] {
        let lines = service(&stack, name).join("\n");
        let limited = lines.contains("resources: *resources")
            || lines.contains("memory: \"${FUSION_MEMORY:-1G}\", pids: 256");
        assert!(limited && lines.contains("<<: *service"), "{name}: {lines}");
    }
    assert_eq!(services.matches("<<: *service").count(), 3, "all services are looked at");
}
