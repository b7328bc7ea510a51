//! `hyloc certs`: a small certification authority and certificates for demos and labs, as files.
//!
//! A directory holds `ca.pem` and `ca.key`, and for every role a directory with what its holder needs: `cert.pem`,
//! `key.pem` and a copy of `ca.pem`. Keys are readable by their owner alone.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use settings::check::within;
use telemetry::exit::{self, Failure};
use trust::authority::{self, Authority, AuthorityError, Description};
use trust::{Name, Paths, Role};

use super::say;

const CA_CERTIFICATE: &str = "ca.pem";
const CA_KEY: &str = "ca.key";

/// Names of the processes and persons of a whole pipeline, without its nodes.
const COMMON: [Role; 5] =
    [Role::FusionCenter, Role::Simulator, Role::Backhaul, Role::Watcher, Role::Operator];

/// Lifetimes of authority and certificates, days.
const CA_DAYS: u32 = 1825;
const DAYS: u32 = 90;

#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Make an authority; with --nodes, also certificates for all roles of a pipeline.
    ///
    ///   hyloc certs init certs --nodes 3
    ///   hyloc fusion --tls-ca certs/ca.pem --tls-cert certs/fusion-center/cert.pem --tls-key certs/fusion-center/key.pem
    ///
    /// Nothing that exists is overwritten.
    #[command(verbatim_doc_comment)]
    Init {
        /// Directory of the authority; made if it does not exist.
        directory: PathBuf,
        /// Domain of the names that it issues, spiffe://DOMAIN/hyloc/ROLE.
        #[arg(long, default_value = "hyloc.internal")]
        domain: String,
        /// Lifetime of the authority, days.
        #[arg(long, default_value_t = CA_DAYS, value_parser = within::<u32>(1, 36_500))]
        days: u32,
        /// Issue certificates for fusion center, simulator, backhaul, watcher, operator and this many nodes.
        #[arg(long, value_name = "K", value_parser = within::<u32>(1, 256))]
        nodes: Option<u32>,
        #[command(flatten)]
        hosts: Hosts,
    },
    /// Issue the certificate of one role.
    ///
    ///   hyloc certs issue certs --role node --index 2
    ///   hyloc certs issue certs --role fusion-center --name fusion.example --name 192.0.2.7
    #[command(verbatim_doc_comment)]
    Issue {
        /// Directory of the authority.
        directory: PathBuf,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        hosts: Hosts,
        /// Lifetime of the certificate, days.
        #[arg(long, default_value_t = DAYS, value_parser = within::<u32>(1, 36_500))]
        days: u32,
    },
    /// Replace certificates and keys by new ones of the same role and names; running processes take them up by
    /// themselves, within seconds.
    ///
    ///   hyloc certs renew certs
    ///   hyloc certs renew certs node/2 fusion-center
    #[command(verbatim_doc_comment)]
    Renew {
        /// Directory of the authority.
        directory: PathBuf,
        /// Roles to renew, as in node/2; all by default.
        roles: Vec<Role>,
        /// Lifetime of the certificates, days.
        #[arg(long, default_value_t = DAYS, value_parser = within::<u32>(1, 36_500))]
        days: u32,
    },
}

/// Whose certificate.
#[derive(Debug, Clone, Args)]
pub struct Who {
    /// One of fusion-center, node (with --index), simulator, backhaul, watcher and operator.
    #[arg(long)]
    role: String,
    /// Index of the node's IRS.
    #[arg(long)]
    index: Option<u32>,
}

impl Who {
    fn role(&self) -> anyhow::Result<Role> {
        let usage = |reason: String| Failure::new(exit::USAGE, reason);
        match (self.role.as_str(), self.index) {
            ("node", Some(index)) => Ok(Role::Node(index)),
            ("node", None) => bail!(usage("--role node needs --index".into())),
            (role, None) => Ok(role.parse().map_err(|error| usage(format!("{error}")))?),
            (role, Some(_)) => bail!(usage(format!("--index is for --role node, not {role}"))),
        }
    }
}

/// Further names of a server.
#[derive(Debug, Clone, Default, Args)]
pub struct Hosts {
    /// Host name or IP address of the process, for browsers and other clients that verify it; may be repeated. localhost
    /// is always among them.
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
}

pub fn run(command: &CertsCommand) -> anyhow::Result<()> {
    match command {
        CertsCommand::Init { directory, domain, days, nodes, hosts } => {
            let store = CertificateStore::init(directory, domain, *days)?;
            say(&format!("{}: authority of {domain}, {days} days", directory.join(CA_CERTIFICATE).display()));
            let nodes = nodes.map(|count| COMMON.into_iter().chain((0..count).map(Role::Node)));
            for role in nodes.into_iter().flatten() {
                say(&shown(&store.issue(role, &hosts.names, DAYS.min(*days))?));
            }
            Ok(())
        }
        CertsCommand::Issue { directory, who, hosts, days } => {
            let role = who.role()?;
            say(&shown(&CertificateStore::open(directory)?.issue(role, &hosts.names, *days)?));
            Ok(())
        }
        CertsCommand::Renew { directory, roles, days } => {
            let store = CertificateStore::open(directory)?;
            let roles = if roles.is_empty() { store.roles()? } else { roles.clone() };
            for role in roles {
                say(&shown(&store.renew(role, *days)?));
            }
            Ok(())
        }
    }
}

fn shown((path, description): &(PathBuf, Description)) -> String {
    format!("{}: {}, until {}", path.display(), description.name, trust::date(description.not_after))
}

/// The directory of an authority.
pub struct CertificateStore {
    directory: PathBuf,
    authority: Authority,
    certificate: String,
}

impl CertificateStore {
    /// Makes an authority.
    pub fn init(directory: &Path, domain: &str, days: u32) -> anyhow::Result<Self> {
        let pair = authority::make(domain, SystemTime::now(), days).map_err(refused)?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.with_context(|| format!("cannot make {}", directory.display()))?;
        write(&directory.join(CA_KEY), pair.key.as_bytes(), 0o600, false)?;
        write(&directory.join(CA_CERTIFICATE), pair.certificate.as_bytes(), 0o644, false)?;
        Self::open(directory)
    }

    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let [certificate, key] = [CA_CERTIFICATE, CA_KEY].map(|name| settings::read(&directory.join(name)));
        let certificate = certificate?;
        let authority = Authority::from_pem(&certificate, &key?);
        let authority = authority
            .map_err(|error| Failure::new(exit::DATA, format!("{}: {error}", directory.display())))?;
        Ok(Self { directory: directory.to_path_buf(), authority, certificate })
    }

    /// Where the files of a role are.
    pub fn paths(&self, role: Role) -> Paths {
        let directory = self.directory.join(role.to_string());
        let path = |name: &str| directory.join(name);
        Paths { ca: path(CA_CERTIFICATE), cert: path("cert.pem"), key: path("key.pem") }
    }

    /// Issues the certificate of a role that has none.
    pub fn issue(&self, role: Role, names: &[String], days: u32) -> anyhow::Result<(PathBuf, Description)> {
        // Containers are known by the name of their service.
        let own = role.to_string().split('/').next().unwrap_or_default().to_owned();
        let names: Vec<String> = std::iter::once(own).chain(names.iter().cloned()).collect();
        self.make(role, &names, days, false)
    }

    /// Replaces the certificate of a role by a new one with the same names.
    pub fn renew(&self, role: Role, days: u32) -> anyhow::Result<(PathBuf, Description)> {
        let path = self.paths(role).cert;
        let known = authority::describe(&settings::read(&path)?);
        let known =
            known.map_err(|error| Failure::new(exit::DATA, format!("{}: {error}", path.display())))?;
        self.make(role, &known.hosts, days, true)
    }

    fn make(
        &self,
        role: Role,
        names: &[String],
        days: u32,
        replace: bool,
    ) -> anyhow::Result<(PathBuf, Description)> {
        let name = Name::new(self.authority.domain(), role).map_err(|error| refused(error.into()))?;
        let pair = self.authority.issue(&name, names, SystemTime::now(), days).map_err(refused)?;
        let paths = self.paths(role);
        let directory = paths.cert.parent().unwrap_or(&self.directory);
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        write(&paths.key, pair.key.as_bytes(), 0o600, replace)?;
        write(&paths.cert, pair.certificate.as_bytes(), 0o644, replace)?;
        write(&paths.ca, self.certificate.as_bytes(), 0o644, true)?;
        Ok((paths.cert, authority::describe(&pair.certificate)?))
    }

    /// All roles that have a certificate here.
    fn roles(&self) -> anyhow::Result<Vec<Role>> {
        let nodes = self.directory.join("node");
        let indices = match std::fs::read_dir(&nodes) {
            Ok(entries) => {
                entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", nodes.display())),
        };
        let mut roles: Vec<Role> = COMMON.into_iter().chain(indices.into_iter().map(Role::Node)).collect();
        roles.retain(|role| self.paths(*role).cert.exists());
        roles.sort();
        Ok(roles)
    }
}

/// What cannot be issued was asked for on the command line.
fn refused(error: AuthorityError) -> Failure {
    Failure::new(exit::USAGE, error)
}

/// Writes a file. What exists is refused, or replaced as a whole, keeping its mode.
fn write(path: &Path, content: &[u8], mode: u32, replace: bool) -> anyhow::Result<()> {
    let write_new = |path: &Path, mode: u32| -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    let written = match std::fs::metadata(path) {
        Ok(metadata) if replace => {
            use std::os::unix::fs::PermissionsExt;
            let new = path.with_extension(format!("new-{}", std::process::id()));
            let permissions = metadata.permissions();
            write_new(&new, permissions.mode())
                .and_then(|()| std::fs::set_permissions(&new, permissions))
                .and_then(|()| std::fs::rename(&new, path))
        }
        Ok(_) => Err(io::Error::new(ErrorKind::AlreadyExists, "it exists already and is not overwritten")),
        Err(_) => write_new(path, mode),
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use trust::Identity;

    use super::*;

    #[test]
    fn an_authority_issues_and_renews() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("certs");
        let store = CertificateStore::init(&at, "lab", 100).unwrap();
        store.issue(Role::Node(2), &["node.example".into()], 10).unwrap();
        store.issue(Role::Operator, &[], 10).unwrap();
        let paths = store.paths(Role::Node(2));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&at.join(CA_KEY)), mode(&paths.key), mode(&at)], [0o600, 0o600, 0o700]);
        let first = Identity::load(paths.clone()).unwrap();
        assert_eq!(first.name().to_string(), "spiffe://lab/hyloc/node/2");

        let again = CertificateStore::open(&at).unwrap();
        assert_eq!(again.roles().unwrap(), [Role::Node(2), Role::Operator]);
        let (_, renewed) = again.renew(Role::Node(2), 20).unwrap();
        assert!(renewed.hosts.contains(&"node.example".into()) && renewed.hosts.contains(&"node".into()));
        assert!(Identity::load(paths.clone()).unwrap().not_after() > first.not_after());
        assert_eq!(mode(&paths.key), 0o600);
    }

    #[test]
    fn nothing_is_overwritten_and_errors_have_codes_by_kind() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let store = CertificateStore::init(at, "lab", 100).unwrap();
        let before = std::fs::read(at.join(CA_KEY)).unwrap();
        let code = |error: Option<anyhow::Error>| exit::code(&error.unwrap());
        assert_eq!(code(CertificateStore::init(at, "lab", 100).err()), exit::IO);
        assert_eq!(std::fs::read(at.join(CA_KEY)).unwrap(), before);
        store.issue(Role::Simulator, &[], 10).unwrap();
        assert_eq!(code(store.issue(Role::Simulator, &[], 10).err()), exit::IO);
        assert_eq!(code(store.issue(Role::Watcher, &[], 102).err()), exit::USAGE, "outlives the authority");
        assert_eq!(code(CertificateStore::init(&at.join("x"), "A domain", 10).err()), exit::USAGE);
        assert_eq!(code(CertificateStore::open(&at.join("nowhere")).err()), exit::IO);
        assert_eq!(code(store.renew(Role::Node(7), 10).err()), exit::IO, "it was never issued");
        std::fs::write(at.join(CA_CERTIFICATE), "nothing").unwrap();
        assert_eq!(code(CertificateStore::open(at).err()), exit::DATA);
        let who = |role: &str, index| Who { role: role.into(), index }.role();
        assert_eq!(who("node", Some(2)).unwrap(), Role::Node(2));
        for (role, index) in [("node", None), ("watcher", Some(1)), ("admin", None)] {
            assert_eq!(code(who(role, index).err()), exit::USAGE, "{role}");
        }
    }
}
