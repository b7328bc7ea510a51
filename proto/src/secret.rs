//! Secrets and identities from the operating system's generator.
//!
//! Everything that a result depends on is drawn from `model::random`, which is reproducible by design. A session, an
//! incarnation or the identity of a run must be the opposite: nobody may be able to predict or repeat it.

/// A secret of 128 bits in hexadecimal digits.
pub fn secret() -> String {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The identity of a run of the simulator: 53 bits, which readers of JSON keep exactly, and never 0.
pub fn run_identity() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    (u64::from_le_bytes(bytes) >> 11).max(1)
}

fn fill(bytes: &mut [u8]) {
    // Without a generator no secret can be made; it fails only before the system has booted or in a broken sandbox.
    getrandom::fill(bytes).expect("the operating system has no random numbers");
}

/// Whether two secrets are equal, in a time that depends on their lengths alone.
pub fn same_secret(a: &str, b: &str) -> bool {
    let different = a.bytes().zip(b.bytes()).fold(0, |different, (a, b)| different | (a ^ b));
    a.len() == b.len() && std::hint::black_box(different) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_128_bits_and_differ() {
        let drawn: std::collections::BTreeSet<String> = (0..1000).map(|_| secret()).collect();
        assert_eq!(drawn.len(), 1000);
        assert!(drawn.iter().all(|s| s.len() == 32 && s.bytes().all(|b| b.is_ascii_hexdigit())));
        // Every bit takes both values.
        let values = drawn.iter().map(|s| u128::from_str_radix(s, 16).unwrap());
        let (all, any) = values.fold((u128::MAX, 0), |(all, any), value| (all & value, any | value));
        assert_eq!((all, any), (0, u128::MAX));
    }

    #[test]
    fn runs_are_exact_in_json_and_differ() {
        let runs: std::collections::BTreeSet<u64> = (0..1000).map(|_| run_identity()).collect();
        assert_eq!(runs.len(), 1000);
        assert!(runs.iter().all(|run| (1..1 << 53).contains(run)));
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same_secret("abc", "abc") && same_secret("", ""));
        for (a, b) in [("abc", "abd"), ("abc", "bbc"), ("abc", "ab"), ("", "a"), ("ab", "abc")] {
            assert!(!same_secret(a, b), "{a} {b}");
        }
    }
}
