//! A scenario on the wire: TOML with a hash, so that two processes can tell whether they speak of the same.

use model::Scenario;
use sha2::{Digest, Sha256};

/// Why a scenario cannot be sent or taken.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioWireError {
    /// It cannot be written.
    #[error("the scenario cannot be written as TOML: {0}")]
    Write(#[from] toml::ser::Error),
    /// It cannot be read.
    #[error("the scenario that was sent cannot be read: {0}")]
    Read(#[from] toml::de::Error),
    /// It contradicts itself.
    #[error("the scenario that was sent is not valid: {0}")]
    Invalid(#[from] model::scenario::ScenarioError),
    /// The text is not the one that the hash was made of.
    #[error("the scenario that was sent does not match its hash")]
    Hash,
}

/// A scenario with its text and hash.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedScenario {
    /// The scenario.
    pub scenario: Scenario,
    /// The same as TOML.
    pub toml: String,
    /// SHA-256 of `toml`.
    pub sha256: [u8; 32],
}

impl SharedScenario {
    /// From a checked scenario.
    pub fn new(scenario: Scenario) -> Result<Self, ScenarioWireError> {
        let toml = toml::to_string(&scenario)?;
        let sha256 = Sha256::digest(toml.as_bytes()).into();
        Ok(Self { scenario, toml, sha256 })
    }

    /// From the wire: checked against its hash and for sense.
    pub fn from_wire(toml: &str, sha256: &[u8]) -> Result<Self, ScenarioWireError> {
        let scenario: Scenario = toml::from_str(toml)?;
        scenario.validate()?;
        let digest: [u8; 32] = Sha256::digest(toml.as_bytes()).into();
        if digest.as_slice() != sha256 {
            return Err(ScenarioWireError::Hash);
        }
        Ok(Self { scenario, toml: toml.to_owned(), sha256: digest })
    }

    /// The hash as text, shortened for people.
    pub fn short_hash(&self) -> String {
        short_hash(&self.sha256)
    }
}

/// The first eight hexadecimal digits of a hash.
pub fn short_hash(sha256: &[u8]) -> String {
    sha256.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_survives_the_wire() {
        let shared = SharedScenario::new(Scenario::default()).unwrap();
        let back = SharedScenario::from_wire(&shared.toml, &shared.sha256).unwrap();
        assert_eq!(shared, back);
    }

    #[test]
    fn another_text_or_hash_is_refused() {
        let shared = SharedScenario::new(Scenario::default()).unwrap();
        let other = SharedScenario::new(Scenario::default().with_seed(2)).unwrap();
        assert_ne!(shared.sha256, other.sha256);
        assert!(matches!(
            SharedScenario::from_wire(&shared.toml, &other.sha256),
            Err(ScenarioWireError::Hash)
        ));
        assert!(SharedScenario::from_wire("seed = -3", &shared.sha256).is_err());
    }
}
