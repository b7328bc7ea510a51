//! The manifests of `deploy/kubernetes` fit the published schemas, and set options that the processes have.

use std::path::PathBuf;
use std::process::Command;

use hyloc_tests::process::executable;
use hyloc_tests::python::python;

fn manifests() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    let files = |name: &str| std::fs::read_dir(folder.join(name)).unwrap().map(|entry| entry.unwrap().path());
    let all = files("pipeline").chain(files("sweep"));
    let mut all: Vec<PathBuf> = all.filter(|path| !path.ends_with("kustomization.yaml")).collect();
    all.sort();
    assert_eq!(all.len(), 6, "{all:?}");
    all
}

#[test]
fn manifests_fit_the_schemas() {
    let test = "kubernetes::manifests_fit_the_schemas";
    let Some(python) = python(test, &["kubernetes_validate"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let certificates = folder.path().join("certs");
    let made = Command::new(executable("hyloc"))
        .args(["certs", "init"])
        .arg(&certificates)
        .args(["--nodes", "3"])
        .output();
    assert!(made.unwrap().status.success());
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes/secrets");
    let secrets = Command::new("bash").arg(script).arg(&certificates).arg("3").output().unwrap();
    assert!(secrets.status.success(), "{}", String::from_utf8_lossy(&secrets.stderr));
    let text = String::from_utf8(secrets.stdout).unwrap();
    assert!(
        text.contains("node-2.key:") && !text.contains("ca.key"),
        "the key of the authority stays at home"
    );
    let secrets = folder.path().join("secrets.yaml");
    std::fs::write(&secrets, text).unwrap();
    let checked = Command::new(python)
        .args(["-m", "kubernetes_validate", "--strict"])
        .args(manifests())
        .arg(&secrets)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr) + String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
    assert_eq!(said.matches(" passed ").count(), 11, "{said}");
}

#[test]
fn variables_are_options_of_the_processes() {
    let mut checked = 0;
    for path in manifests() {
        let text = std::fs::read_to_string(&path).unwrap();
        for name in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            for (prefix, command) in
                [("HYLOC_FUSION_", "fusion"), ("HYLOC_NODE_", "node"), ("HYLOC_SIMULATOR_", "simulate")]
            {
                let Some(key) = name.strip_prefix(prefix) else { continue };
                let help = Command::new(executable("hyloc")).args([command, "--help"]).output().unwrap();
                let help = String::from_utf8(help.stdout).unwrap();
                let flag = format!("--{}", key.to_lowercase().replace('_', "-"));
                let known = help.split_whitespace().any(|word| word.trim_end_matches(',') == flag);
                assert!(known, "{}: {name} is no option of hyloc {command}", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked >= 20, "{checked}");
}
