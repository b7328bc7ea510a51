//! A small certification authority for demos and labs: pure functions from names and times to PEM.
//!
//! Keys are ECDSA on P-256. The authority's certificate names its domain (`spiffe://DOMAIN`), from which those that it
//! issues take theirs. Processes get certificates for both sides of a connection, persons only for that of a client.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::material::validity;
use crate::role::{Name, NameError, Role};

/// How far before its making a certificate is valid, for clocks that are behind.
const BACKDATED: Duration = Duration::from_secs(3600);

const DAY: Duration = Duration::from_secs(86_400);

/// Names by which every process can be reached on its own machine.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Why a certificate cannot be made or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("'{0}' is neither a host name nor an IP address")]
    Host(String),
    #[error("the authority expires before {0} days have passed: ask for fewer, or make a new authority")]
    OutlivesAuthority(u32),
    #[error("not a certificate and key of an authority: {0}")]
    Authority(String),
    #[error("the certificate cannot be made: {0}")]
    Make(String),
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> Self {
        Self::Make(error.to_string())
    }
}

/// A certificate and its private key, PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub name: Name,
    /// Host names and addresses, for clients that verify these.
    pub hosts: Vec<String>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

/// Makes an authority for a domain.
pub fn make(domain: &str, now: SystemTime, days: u32) -> Result<Pair, AuthorityError> {
    // Any role will do: the domain is checked.
    Name::new(domain, Role::Operator)?;
    let mut params = params(&format!("hyloc authority of {domain}"), now, days);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.subject_alt_names = vec![uri(&format!("spiffe://{domain}"))?];
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

fn params(common_name: &str, now: SystemTime, days: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = OffsetDateTime::from(now - BACKDATED);
    params.not_after = OffsetDateTime::from(now + days * DAY);
    params
}

fn uri(text: &str) -> Result<SanType, AuthorityError> {
    Ok(SanType::URI(Ia5String::try_from(text)?))
}

/// An authority that issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    domain: String,
    not_after: SystemTime,
}

impl Authority {
    /// Reads certificate and key of an authority.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let refuse = |reason: &dyn std::fmt::Display| AuthorityError::Authority(reason.to_string());
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| refuse(&error))?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| refuse(&error))?;
        if !parsed.is_ca() {
            return Err(refuse(&"the certificate is not that of an authority"));
        }
        let domain = uris(&parsed).find_map(|uri| uri.strip_prefix("spiffe://").map(str::to_owned));
        let domain = domain.ok_or_else(|| refuse(&"its certificate names no domain (spiffe://DOMAIN)"))?;
        let (_, not_after) = validity(&der).map_err(|error| refuse(&error))?;
        let key = KeyPair::from_pem(key).map_err(|error| refuse(&error))?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(refuse(&"the key belongs to another certificate"));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| refuse(&error))?;
        Ok(Self { issuer, domain, not_after })
    }

    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Issues a certificate with a new key. `hosts` are further names and addresses of a process, for clients that
    /// verify these; `LOCAL_HOSTS` are always among them.
    pub fn issue(
        &self,
        name: &Name,
        hosts: &[String],
        now: SystemTime,
        days: u32,
    ) -> Result<Pair, AuthorityError> {
        // A certificate for the whole life of the authority is made a moment after it.
        if now + days * DAY > self.not_after + DAY {
            return Err(AuthorityError::OutlivesAuthority(days));
        }
        let person = matches!(name.role, Role::Watcher | Role::Operator);
        let mut params = params(&name.role.to_string(), now, days);
        params.not_after = params.not_after.min(self.not_after.into());
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![uri(&name.to_string())?];
        if !person {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            let own = LOCAL_HOSTS.into_iter().map(str::to_owned);
            let further = hosts.iter().filter(|host| !LOCAL_HOSTS.contains(&host.as_str())).cloned();
            for host in own.chain(further) {
                params.subject_alt_names.push(host_name(&host)?);
            }
        }
        let key = KeyPair::generate()?;
        Ok(Pair { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

fn host_name(host: &str) -> Result<SanType, AuthorityError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let plain = |c: u8| c.is_ascii_alphanumeric() || [b'-', b'.', b'_'].contains(&c);
    let valid = (1..=253).contains(&host.len()) && host.bytes().all(plain);
    let name = Ia5String::try_from(host).ok().filter(|_| valid);
    name.map(SanType::DnsName).ok_or_else(|| AuthorityError::Host(host.escape_default().to_string()))
}

/// Reads what a certificate says.
pub fn describe(certificate: &str) -> Result<Description, AuthorityError> {
    let refuse = |reason: &dyn std::fmt::Display| NameError::Certificate(reason.to_string());
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| refuse(&error))?;
    let name = Name::of_certificate(&der)?;
    let (not_before, not_after) = validity(&der).map_err(|error| refuse(&error))?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| refuse(&error))?;
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let names = alternative.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    };
    Ok(Description { name, hosts: names.iter().filter_map(host).collect(), not_before, not_after })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn uris<'a>(certificate: &'a X509Certificate<'a>) -> impl Iterator<Item = &'a str> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative.into_iter().flat_map(|extension| &extension.value.general_names);
    names.filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab(now: SystemTime) -> Authority {
        let pair = make("lab.example", now, 100).unwrap();
        Authority::from_pem(&pair.certificate, &pair.key).unwrap()
    }

    #[test]
    fn a_certificate_says_what_was_asked_for() {
        let now = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let authority = lab(now);
        let name = Name::new(authority.domain(), Role::Node(2)).unwrap();
        let hosts = ["fusion.example".to_owned(), "192.0.2.7".to_owned(), "localhost".to_owned()];
        let issued = authority.issue(&name, &hosts, now, 90).unwrap();
        let described = describe(&issued.certificate).unwrap();
        assert_eq!(described.name.to_string(), "spiffe://lab.example/hyloc/node/2");
        assert_eq!(described.hosts, ["localhost", "127.0.0.1", "::1", "fusion.example", "192.0.2.7"]);
        assert_eq!((described.not_before, described.not_after), (now - BACKDATED, now + 90 * DAY));
        assert!(issued.key.contains("PRIVATE KEY"));
        // A person has no address.
        let watcher = Name::new("lab.example", Role::Watcher).unwrap();
        let watcher = authority.issue(&watcher, &hosts, now, 90).unwrap();
        assert_eq!(describe(&watcher.certificate).unwrap().hosts, Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_issued_is_named() {
        let now = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let authority = lab(now);
        let name = Name::new("lab.example", Role::Simulator).unwrap();
        let host = ["not a host".to_owned()];
        let refused = authority.issue(&name, &host, now, 10).err();
        assert_eq!(refused, Some(AuthorityError::Host("not a host".into())));
        let longest = authority.issue(&name, &[], now + DAY / 2, 100).unwrap();
        assert_eq!(
            describe(&longest.certificate).unwrap().not_after,
            now + 100 * DAY,
            "not beyond the authority"
        );
        let refused = authority.issue(&name, &[], now, 102).err();
        assert_eq!(refused, Some(AuthorityError::OutlivesAuthority(102)));
        assert!(matches!(make("Not a domain", now, 10), Err(AuthorityError::Name(NameError::Domain(_)))));
        let leaf = authority.issue(&name, &[], now, 10).unwrap();
        let refused = Authority::from_pem(&leaf.certificate, &leaf.key).err().unwrap().to_string();
        assert!(refused.contains("not that of an authority"), "{refused}");
        let (one, other) = (make("lab", now, 10).unwrap(), make("lab", now, 10).unwrap());
        let refused = Authority::from_pem(&one.certificate, &other.key).err().unwrap().to_string();
        assert!(refused.contains("belongs to another"), "{refused}");
        assert!(Authority::from_pem("nothing", &one.key).is_err());
    }
}
