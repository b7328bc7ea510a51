//! Authentication and authorisation: roles in certificates, mutual TLS, and certificates that are reloaded while they are in use.
//!
//! A certificate names a role as a URI, `spiffe://DOMAIN/hyloc/ROLE` ([`role`]). Peers are verified by a chain to the
//! authority and by role, never by host name, so that relays, containers and changing addresses do not matter
//! ([`verify`]). [`Identity`] holds what a process proves itself with and replaces it when its files change;
//! [`Acceptor`] is the server side of a connection, [`Identity::client`] the client side; [`Peer`] is who is at the
//! other end and what it may do. [`authority`] makes a small certification authority for demos and labs.
//!
//! TLS 1.3 only, with one cryptographic provider (ring), and without session resumption: every connection proves its
//! certificate anew.

mod accept;
pub mod authority;
mod identity;
#[cfg(test)]
mod lab;
mod material;
pub mod options;
mod peer;
pub mod role;
pub mod verify;

pub use accept::{Acceptor, Connection, HANDSHAKE_TIMEOUT, Protocol, secured};
pub use identity::{ClientTls, Identity, Paths, unnamed};
pub use material::{MaterialError, date};
pub use options::{Listen, TlsOptions};
pub use peer::{Caller, Denied, Needs, Peer};
pub use role::{Name, Role};

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;

/// The one provider of cryptography. AES with keys of 128 bits comes first: it costs less per byte than with 256, and is as
/// strong as the elliptic curves of the handshake.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}
