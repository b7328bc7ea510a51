//! Certificate, key and authorities of a process, read from PEM files and checked together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use settings::SettingsError;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::provider;
use crate::role::{Name, Role};
use crate::verify::RoleVerifier;

/// Largest file that is read: a bundle of thousands of authorities.
const LARGEST_FILE: u64 = 4 << 20;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: {reason}")]
    Content { path: PathBuf, reason: String },
}

impl From<MaterialError> for SettingsError {
    fn from(error: MaterialError) -> Self {
        match error {
            MaterialError::File { path, source } => Self::File { path, source },
            MaterialError::Content { path, reason } => Self::content(&path, reason),
        }
    }
}

fn content(path: &Path, reason: impl ToString) -> MaterialError {
    MaterialError::Content { path: path.to_path_buf(), reason: reason.to_string() }
}

/// Where the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Certificates of the authorities that peers are verified by.
    pub ca: PathBuf,
    /// Certificate of this process, and intermediate ones after it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The bytes of the three files.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Files {
    ca: Vec<u8>,
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    pub fn read(paths: &Paths) -> Result<Self, MaterialError> {
        Ok(Self { ca: read(&paths.ca)?, cert: read(&paths.cert)?, key: read(&paths.key)? })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, MaterialError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
    read.map_err(|source| MaterialError::File { path: path.to_path_buf(), source })?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(content(path, format!("larger than {} MiB", LARGEST_FILE >> 20)));
    }
    Ok(bytes)
}

/// The authorities in a PEM file.
pub(crate) fn authorities(path: &Path) -> Result<Arc<RootCertStore>, MaterialError> {
    roots(path, &read(path)?)
}

fn roots(path: &Path, pem: &[u8]) -> Result<Arc<RootCertStore>, MaterialError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, pem)? {
        roots.add(certificate).map_err(|error| content(path, error))?;
    }
    Ok(Arc::new(roots))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let parsed = parsed.map_err(|error| content(path, error))?;
    if parsed.is_empty() {
        return Err(content(path, "no certificate: the file must be PEM"));
    }
    Ok(parsed)
}

/// A loaded certificate with its key, and the authorities.
pub(crate) struct Material {
    pub name: Name,
    pub not_after: SystemTime,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    /// For servers without an application protocol; see [`Self::server`].
    server: ServerConfig,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Material").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Material {
    /// Checks that the files belong together and are valid at `now`.
    pub fn new(paths: &Paths, files: &Files, now: SystemTime) -> Result<Self, MaterialError> {
        let roots = roots(&paths.ca, &files.ca)?;
        let chain = certificates(&paths.cert, &files.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&files.key);
        let key = key.map_err(|error| content(&paths.key, format!("no private key: {error}")))?;
        let name = Name::of_certificate(&chain[0]).map_err(|error| content(&paths.cert, error))?;
        let (not_before, not_after) = validity(&chain[0]).map_err(|reason| content(&paths.cert, reason))?;
        if !(not_before..=not_after).contains(&now) {
            let [from, to] = [not_before, not_after].map(date);
            let reason = format!(
                "valid from {from} to {to}, not now: check the clock, or renew the certificate (`hyloc certs renew`)"
            );
            return Err(content(&paths.cert, reason));
        }
        let refuse = |error: &dyn std::fmt::Display| content(&paths.ca, error);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
        // Health answers without a certificate; every other call is checked against the role.
        let verifier = verifier.allow_unauthenticated().build().map_err(|error| refuse(&error))?;
        let server = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let server = server.map_err(|error| refuse(&error))?.with_client_cert_verifier(verifier);
        let server = server.with_single_cert(chain.clone(), key.clone_key());
        // The key does not belong to the certificate, or its kind is not supported.
        let mut server = server.map_err(|error| content(&paths.key, error))?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { name, not_after, chain, key, roots, server })
    }

    /// Configuration of a server of the application protocol `alpn`.
    pub fn server(&self, alpn: &[u8]) -> Arc<ServerConfig> {
        let mut server = self.server.clone();
        server.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(server)
    }

    /// Configuration of a client that connects to a server of this role, any if none.
    pub fn client(&self, role: Option<Role>, alpn: &[u8]) -> Result<Arc<ClientConfig>, rustls::Error> {
        let identity = Some((self.chain.clone(), self.key.clone_key()));
        client(self.roots.clone(), role, Some(self.name.domain.clone()), identity, alpn)
    }
}

/// Configuration of a client, with or without a certificate of its own.
pub(crate) fn client(
    roots: Arc<RootCertStore>,
    role: Option<Role>,
    domain: Option<String>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    alpn: &[u8],
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let verifier = Arc::new(RoleVerifier { roots, provider: provider(), role, domain });
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

/// From when and until when a certificate is valid.
pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Result<(SystemTime, SystemTime), String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let time = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let validity = parsed.validity();
    Ok((time(validity.not_before.timestamp()), time(validity.not_after.timestamp())))
}

/// A time as in 2026-11-17 07:00 UTC.
pub fn date(time: SystemTime) -> String {
    let time = time::OffsetDateTime::from(time);
    let (date, hour, minute) = (time.date(), time.hour(), time.minute());
    format!("{date} {hour:02}:{minute:02} UTC")
}
