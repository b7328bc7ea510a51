//! Roles and how certificates name them.
//!
//! The name of a process or person is a SPIFFE identity, `spiffe://DOMAIN/hyloc/ROLE`: the only URI of that scheme
//! among the alternative names of its certificate. The domain separates deployments that share an authority.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;

const SCHEME: &str = "spiffe://";

/// First part of the path of every name.
const PRODUCT: &str = "hyloc";

/// Longest name that is accepted, bytes (SPIFFE sets 2048).
const LONGEST_NAME: usize = 512;

/// What the holder of a certificate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Serves `Register`, `Report`, `Truth`, `Watch`, `Status` and the page.
    FusionCenter,
    /// The node of the IRS with this index.
    Node(u32),
    /// Sends the truth to the fusion center and echoes to the nodes.
    Simulator,
    /// The emulator of the backhaul, whose control is served under this name.
    Backhaul,
    /// Reads fixes, status, pages and metrics.
    Watcher,
    /// Reads what a watcher reads, and changes a running pipeline.
    Operator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::FusionCenter => write!(f, "fusion-center"),
            Self::Node(index) => write!(f, "node/{index}"),
            Self::Simulator => write!(f, "simulator"),
            Self::Backhaul => write!(f, "backhaul"),
            Self::Watcher => write!(f, "watcher"),
            Self::Operator => write!(f, "operator"),
        }
    }
}

/// Why text is not a role or a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "'{0}' is not a role: there are fusion-center, node/INDEX, simulator, backhaul, watcher and operator"
    )]
    Role(String),
    #[error("'{0}' is not of the form spiffe://DOMAIN/hyloc/ROLE")]
    Form(String),
    #[error("'{0}' is not a domain: lower-case letters, digits, dots, hyphens and underscores are")]
    Domain(String),
    #[error("the certificate has no name of the form spiffe://DOMAIN/hyloc/ROLE")]
    Missing,
    #[error("the certificate has several names that begin with spiffe://; it must have one")]
    Several,
    #[error("the certificate cannot be parsed: {0}")]
    Certificate(String),
}

impl FromStr for Role {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let unknown = || NameError::Role(text.chars().take(64).flat_map(char::escape_default).collect());
        match text {
            "fusion-center" => Ok(Self::FusionCenter),
            "simulator" => Ok(Self::Simulator),
            "backhaul" => Ok(Self::Backhaul),
            "watcher" => Ok(Self::Watcher),
            "operator" => Ok(Self::Operator),
            _ => {
                let digits = text.strip_prefix("node/").ok_or_else(unknown)?;
                let index: u32 = digits.parse().map_err(|_| unknown())?;
                // One name per index: neither `+1` nor `01`.
                (digits == index.to_string()).then_some(Self::Node(index)).ok_or_else(unknown)
            }
        }
    }
}

/// The name that a certificate proves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    pub domain: String,
    pub role: Role,
}

impl Name {
    /// A name in a checked domain.
    pub fn new(domain: &str, role: Role) -> Result<Self, NameError> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || [b'.', b'-', b'_'].contains(&c);
        if !(1..=255).contains(&domain.len()) || !domain.bytes().all(plain) {
            return Err(NameError::Domain(domain.chars().take(64).flat_map(char::escape_default).collect()));
        }
        Ok(Self { domain: domain.to_owned(), role })
    }

    /// The name in a certificate. The certificate itself is *not* verified here.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Self, NameError> {
        let parsed = webpki::EndEntityCert::try_from(certificate);
        let parsed = parsed.map_err(|error| NameError::Certificate(error.to_string()))?;
        let mut names = parsed.valid_uri_names().filter(|uri| uri.starts_with(SCHEME));
        let name = names.next().ok_or(NameError::Missing)?;
        if names.next().is_some() {
            return Err(NameError::Several);
        }
        name.parse()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{SCHEME}{}/{PRODUCT}/{}", self.domain, self.role)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let form = || NameError::Form(text.chars().take(128).flat_map(char::escape_default).collect());
        if text.len() > LONGEST_NAME {
            return Err(form());
        }
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let (domain, path) = rest.split_once('/').ok_or_else(form)?;
        let (product, role) = path.split_once('/').ok_or_else(form)?;
        if product != PRODUCT {
            return Err(form());
        }
        Self::new(domain, role.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let roles = ["fusion-center", "node/0", "node/31", "simulator", "backhaul", "watcher", "operator"];
        for role in roles {
            let text = format!("spiffe://lab.example/hyloc/{role}");
            let name: Name = text.parse().unwrap();
            assert_eq!((name.to_string(), name.domain.as_str()), (text, "lab.example"));
            assert_eq!(name.role.to_string(), role);
        }
    }

    #[test]
    fn what_only_resembles_a_name_is_refused() {
        let refused = [
            "",
            "spiffe://lab/hyloc",
            "spiffe:///hyloc/watcher",
            "https://lab/hyloc/watcher",
            "spiffe://lab/other/watcher",
            "spiffe://lab/hyloc/",
            "spiffe://lab/hyloc/admin",
            "spiffe://lab/hyloc/watcher/",
            "spiffe://lab/hyloc/Operator",
            "spiffe://LAB/hyloc/watcher",
            "spiffe://lab:80/hyloc/watcher",
            "spiffe://user@lab/hyloc/watcher",
            "spiffe://lab/hyloc/node",
            "spiffe://lab/hyloc/node/",
            "spiffe://lab/hyloc/node/01",
            "spiffe://lab/hyloc/node/+1",
            "spiffe://lab/hyloc/node/-1",
            "spiffe://lab/hyloc/node/4294967296",
            "spiffe://lab/hyloc/node/1/2",
        ];
        for text in refused {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
        assert!(format!("spiffe://{}/hyloc/watcher", "a".repeat(600)).parse::<Name>().is_err());
        let hostile = "spiffe://lab/hyloc/\u{202e}\n".parse::<Name>().unwrap_err().to_string();
        assert!(hostile.is_ascii() && !hostile.contains('\n'), "{hostile}");
    }
}
