//! A sweep on a real Slurm: controller and daemon of Debian's packages on this machine, an array of eight shards of which one is
//! killed and requeued, a dependent merge, and the same bytes as without Slurm.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hyloc_tests::process::{eventually, executable, free_address, skipped};

const PLAN: &str = r#"
trials = 400

[[axis]]
key = "base_station.power_dbm"
values = [40, 45, 50]

[[axis]]
key = "method"
values = ["direct", "auto", "three-stage"]
"#;

/// Munge, controller and daemon; they are stopped when this is dropped.
struct Cluster {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn installed(name: &str) -> bool {
    Command::new(name).arg("-V").output().is_ok_and(|out| out.status.success())
}

impl Cluster {
    fn start() -> Self {
        let mut cluster = Self { folder: tempfile::tempdir().unwrap(), children: Vec::new() };
        let at = |name: &str| cluster.folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["state", "spool"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let host = Command::new("hostname").output().unwrap();
        let host = String::from_utf8(host.stdout).unwrap().trim().to_owned();
        let [controller, daemon] = [free_address(), free_address()].map(|address| address.port());
        let configuration = format!(
            "ClusterName=hyloc\nSlurmctldHost={host}(127.0.0.1)\nAuthType=auth/munge\nAuthInfo=socket={}\n\
             CryptoType=crypto/munge\nSlurmUser=root\nSlurmdUser=root\nStateSaveLocation={}\nSlurmdSpoolDir={}\n\
             SlurmctldPidFile={}\nSlurmdPidFile={}\nSlurmctldLogFile={}\nSlurmdLogFile={}\n\
             SlurmctldPort={controller}\nSlurmdPort={daemon}\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\nMpiDefault=none\nJobRequeue=1\n\
             SchedulerParameters=sched_interval=1,requeue_setup_env_fail\nMinJobAge=3600\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\n\
             PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            at("munge.socket"),
            at("state"),
            at("spool"),
            at("slurmctld.pid"),
            at("slurmd.pid"),
            at("slurmctld.log"),
            at("slurmd.log"),
        );
        std::fs::write(at("slurm.conf"), configuration).unwrap();
        let mut key = Command::new("sh");
        key.args(["-c", "umask 077; head -c 1024 /dev/urandom > \"$0\""]).arg(at("key"));
        assert!(key.status().unwrap().success());
        let munge = [
            "--foreground".to_owned(),
            "--force".into(),
            format!("--socket={}", at("munge.socket")),
            format!("--key-file={}", at("key")),
            format!("--pid-file={}", at("munge.pid")),
            format!("--log-file={}", at("munge.log")),
            format!("--seed-file={}", at("munge.seed")),
        ];
        let socket = at("munge.socket");
        cluster.spawn("munged", &munge);
        eventually("munge listens", || Path::new(&socket).exists().then_some(()));
        cluster.spawn("slurmctld", &["-D".into(), "-i".into()]);
        cluster.spawn("slurmd", &["-D".into()]);
        eventually("the node is idle", || {
            cluster.said("sinfo", &["--noheader", "--format=%T"]).contains("idle").then_some(())
        });
        cluster
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf")).stdin(Stdio::null());
        command
    }

    fn spawn(&mut self, name: &str, arguments: &[String]) {
        let mut command = self.command(name);
        let child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.children.push(child.unwrap_or_else(|error| panic!("{name}: {error}")));
    }

    fn said(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.command(name).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn results(folder: &Path) -> [Vec<u8>; 2] {
    ["sweep.csv", "sweep.parquet"].map(|name| std::fs::read(folder.join(name)).unwrap())
}

#[test]
fn an_array_with_a_killed_task_gives_the_bytes_of_one_machine() {
    if !["slurmctld", "slurmd", "munged"].into_iter().all(installed) {
        skipped(
            "slurm::an_array_with_a_killed_task_gives_the_bytes_of_one_machine",
            "it needs slurm-wlm and munge",
        );
        return;
    }
    let hyloc = executable("hyloc");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("plan.toml"), PLAN).unwrap();
    let cluster = Cluster::start();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/slurm/submit");
    let mut submitted = cluster
        .command("bash")
        .arg(script)
        .arg(at("plan.toml"))
        .args(["--tasks", "8", "--out"])
        .arg(at("slurm"))
        .arg("--hyloc")
        .arg(&hyloc)
        .env("HYLOC_POLL_S", "0.5")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A task that runs is put back into the queue as soon as it has finished something.
    let requeued = eventually("a task is requeued", || {
        let running =
            cluster.said("squeue", &["--noheader", "--array", "--states=RUNNING", "--format=%A %K"]);
        let (job, index) = running.lines().find_map(|line| line.trim().split_once(' '))?;
        let shard = at("slurm").join(format!("shard-{}-of-8.jsonl", index.trim()));
        let lines = std::fs::read_to_string(shard).map_or(0, |text| text.lines().count());
        (2..12).contains(&lines).then_some(())?;
        cluster
            .command("scontrol")
            .args(["requeue", job])
            .status()
            .ok()?
            .success()
            .then_some(index.to_owned())
    });
    let ended = submitted.wait().unwrap();
    let output = submitted.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(ended.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("sweep.csv"));
    let log =
        std::fs::read_to_string(at("slurm").join(format!("logs/shard-{}.log", requeued.0.trim()))).unwrap();
    assert!(log.contains("CANCELLED") || log.contains("REQUEUE") || log.contains("interrupted"), "{log}");
    let alone = Command::new(&hyloc)
        .arg("sweep")
        .arg(at("plan.toml"))
        .arg("--out")
        .arg(at("alone"))
        .output()
        .unwrap();
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
    assert_eq!(results(&at("slurm")), results(&at("alone")));
}
