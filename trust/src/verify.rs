//! Verification of a server by its role instead of its host name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};

use crate::role::{Name, NameError, Role};

/// Why the certificate of a server with a valid chain is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongServer {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the server is {found}, not {expected}")]
    Role { found: Role, expected: Role },
    #[error("the server is of the domain {found}, not {expected}")]
    Domain { found: String, expected: String },
}

/// Verifies the chain to an authority and the validity as for any server, then the role in place of the host name.
#[derive(Debug)]
pub struct RoleVerifier {
    pub roots: Arc<RootCertStore>,
    pub provider: Arc<CryptoProvider>,
    /// The role that the server must have; any if none.
    pub role: Option<Role>,
    /// The domain that it must belong to; any if none.
    pub domain: Option<String>,
}

impl RoleVerifier {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), WrongServer> {
        let Name { domain, role } = Name::of_certificate(certificate)?;
        if let Some(expected) = self.domain.clone().filter(|expected| *expected != domain) {
            return Err(WrongServer::Domain { found: domain, expected });
        }
        match self.role.filter(|expected| *expected != role) {
            Some(expected) => Err(WrongServer::Role { found: role, expected }),
            None => Ok(()),
        }
    }
}

impl ServerCertVerifier for RoleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        let refuse = |reason| Error::from(CertificateError::Other(OtherError(Arc::new(reason))));
        self.check(end_entity).map_err(refuse)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
