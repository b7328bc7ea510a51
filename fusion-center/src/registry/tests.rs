use super::*;

fn application(identity: &str, index: Option<usize>, incarnation: &str) -> Application {
    Application {
        protocol_version: PROTOCOL_VERSION,
        identity: identity.into(),
        index,
        site_sha256: Vec::new(),
        incarnation: incarnation.into(),
        proven_index: None,
    }
}

fn proven(identity: &str, index: usize, incarnation: &str) -> Application {
    Application { proven_index: Some(index), ..application(identity, None, incarnation) }
}

fn taken(index: usize, holder: &str) -> Result<usize, RegistrationError> {
    Err(RegistrationError::Taken { index, holder: holder.into() })
}

#[test]
fn indices_are_given_out_kept_and_given_back() {
    let mut registry = Registry::new(2, &[1]);
    assert_eq!(registry.register(&application("a", None, "1"), "s-a", 0), Ok(0));
    assert_eq!(registry.register(&application("b", None, "1"), "s-b", 0), Ok(1));
    let full = Err(RegistrationError::Full { count: 2 });
    assert_eq!(registry.register(&application("c", None, "1"), "s-c", 0), full);
    assert_eq!(registry.connect("s-b", 1), Ok(1));
    assert_eq!(registry.connected(), 1);
    assert!(registry.disconnect("s-b", true, 2));
    // Away, but remembered.
    assert_eq!(registry.register(&application("b", None, "2"), "s-b2", 3), Ok(1));
}

#[test]
fn a_taken_index_is_refused_and_the_same_process_comes_back() {
    let mut registry = Registry::new(2, &[1]);
    assert_eq!(registry.register(&application("a", Some(1), "1"), "first", 0), Ok(1));
    assert_eq!(registry.register(&application("b", Some(1), "1"), "x", 0), taken(1, "a"));
    // A second process under the same name is not the same node.
    assert_eq!(registry.register(&application("a", Some(1), "2"), "x", 0), taken(1, "a"));
    assert_eq!(registry.register(&application("a", Some(1), "1"), "again", 0), Ok(1));
    assert!(!registry.disconnect("first", false, 1), "the old stream no longer counts");
    assert_eq!(registry.connect("first", 1), Err(StreamError::Unknown));
    assert_eq!(registry.connect("again", 1), Ok(1));
    let none = Err(RegistrationError::NoSuchIndex { index: 2, count: 2 });
    assert_eq!(registry.register(&application("x", Some(2), ""), "x", 0), none);
}

#[test]
fn strangers_are_told_why() {
    let mut registry = Registry::new(1, &[1, 2, 3, 4]);
    let mut old = application("a", None, "1");
    old.protocol_version = 0;
    assert_eq!(registry.register(&old, "x", 0), Err(RegistrationError::Protocol { found: 0 }));
    let mut other = application("a", None, "1");
    other.site_sha256 = vec![9, 9, 9, 9];
    let refusal = registry.register(&other, "x", 0).unwrap_err().to_string();
    assert!(refusal.contains("09090909") && refusal.contains("01020304"), "{refusal}");
    for identity in ["a\nb", "", "node\u{202e}0"] {
        let refused = registry.register(&application(identity, None, "1"), "x", 0);
        assert_eq!(refused, Err(RegistrationError::Identity), "{identity:?}");
    }
    let same = Application { site_sha256: vec![1, 2, 3, 4], ..application("a", None, "1") };
    assert_eq!(registry.register(&same, "x", 0), Ok(0));
}

/// A session from its registration to its end: one stream, which ends once.
#[test]
fn a_session_has_one_stream() {
    let mut registry = Registry::new(2, &[1]);
    assert_eq!((registry.holder(1), registry.is_current("")), (("", false), false), "nobody has registered");
    assert_eq!(registry.connect("", 0), Err(StreamError::Unknown));
    registry.register(&application("a", Some(1), "1"), "secret", 0).unwrap();
    assert_eq!(registry.holder(1), ("a", false));
    assert!(registry.is_current("secret") && !registry.is_current("secreT"));
    assert_eq!(registry.connect("secreT", 1), Err(StreamError::Unknown));
    assert_eq!(registry.connect("secret", 1), Ok(1));
    assert_eq!((registry.holder(0), registry.holder(1)), (("", false), ("a", true)));
    // Another stream of the same session is refused and changes nothing.
    assert_eq!(registry.connect("secret", 2), Err(StreamError::Open));
    assert_eq!(registry.holder(1), ("a", true));
    assert!(!registry.disconnect("secreT", true, 2));
    assert!(registry.disconnect("secret", true, 3));
    assert_eq!(registry.holder(1), ("a", false));
    assert_eq!(registry.connect("secret", 4), Err(StreamError::Unknown), "it has ended");
}

/// A process that dies between registration and stream, or a stranger that never opens one, blocks an index for a lease.
#[test]
fn a_registration_without_a_stream_expires() {
    let mut registry = Registry::new(1, &[1]);
    registry.register(&application("a", None, "first life"), "s1", 10).unwrap();
    let next = application("a", None, "next life");
    assert_eq!(registry.register(&next, "s2", 10 + LEASE_NS - 1), taken(0, "a"));
    assert_eq!(registry.register(&next, "s2", 10 + LEASE_NS), Ok(0));
    assert_eq!(registry.connect("s1", 10 + LEASE_NS), Err(StreamError::Unknown));
    assert_eq!(registry.connect("s2", 10 + 2 * LEASE_NS), Err(StreamError::Unknown), "too late");
    registry.register(&next, "s3", 50 * LEASE_NS).unwrap();
    assert_eq!(registry.connect("s3", 51 * LEASE_NS - 1), Ok(0));
    // A stream in use does not expire.
    assert_eq!(registry.register(&application("b", Some(0), "1"), "s4", 99 * LEASE_NS), taken(0, "a"));
}

/// A stream that breaks reserves the index for its holder; a stranger waits, the holder does not.
#[test]
fn a_broken_stream_reserves_the_index_for_its_holder() {
    let mut registry = Registry::new(1, &[1]);
    registry.register(&application("a", None, "1"), "s1", 0).unwrap();
    registry.connect("s1", 1).unwrap();
    assert!(registry.disconnect("s1", false, 100));
    assert_eq!(registry.register(&application("thief", Some(0), "t"), "t", 101), taken(0, "a"));
    assert_eq!(registry.register(&application("a", Some(0), "t"), "t", 101), taken(0, "a"));
    assert_eq!(registry.connect("s1", 101), Err(StreamError::Unknown), "a stolen session is worthless");
    assert_eq!(registry.register(&application("a", Some(0), "1"), "s2", 102), Ok(0));
    registry.connect("s2", 103).unwrap();
    assert!(registry.disconnect("s2", false, 200));
    let late = 200 + LEASE_NS;
    assert_eq!(registry.register(&application("b", Some(0), "b"), "s3", late), Ok(0), "the lease is over");
}

/// Without an index: the own one, then one that nobody has had, then one whose holder is away.
#[test]
fn applicants_get_the_index_that_harms_least() {
    let mut registry = Registry::new(3, &[1]);
    for name in ["a", "b"] {
        registry.register(&application(name, None, "1"), name, 0).unwrap();
        registry.connect(name, 0).unwrap();
    }
    assert!(registry.disconnect("a", true, 1));
    assert_eq!(registry.register(&application("c", None, "1"), "c", 2), Ok(2), "nobody has had it");
    assert_eq!(registry.register(&application("d", None, "1"), "d", 2), Ok(0), "its holder is away");
    assert_eq!(registry.register(&application("b", None, "2"), "x", 2), taken(1, "b"), "another process");
    assert_eq!(registry.register(&application("b", None, "1"), "b2", 2), Ok(1), "the same process");
    let full = Err(RegistrationError::Full { count: 3 });
    assert_eq!(registry.register(&application("e", None, "1"), "e", 2), full);
}

/// Who tells no incarnation cannot be known to be the same process.
#[test]
fn without_an_incarnation_an_index_is_taken_until_it_is_left() {
    let mut registry = Registry::new(1, &[1]);
    registry.register(&application("a", Some(0), ""), "s1", 0).unwrap();
    assert_eq!(registry.register(&application("a", Some(0), ""), "s2", 1), taken(0, "a"));
    registry.connect("s1", 1).unwrap();
    assert!(registry.disconnect("s1", true, 2));
    assert_eq!(registry.register(&application("a", Some(0), ""), "s2", 3), Ok(0));
}

/// A certificate gives its own index and no other, from whoever holds it without one; two processes that show the same
/// certificate do not end each other's streams.
#[test]
fn a_certificate_proves_its_index_alone() {
    let mut registry = Registry::new(2, &[1]);
    let unproven = Err(RegistrationError::Unproven { index: 0, proven: 1 });
    let foreign = Application { index: Some(0), ..proven("a", 1, "1") };
    assert_eq!(registry.register(&foreign, "x", 0), unproven);
    registry.register(&application("squatter", Some(1), "s"), "s", 0).unwrap();
    registry.connect("s", 0).unwrap();
    assert_eq!(registry.register(&proven("a", 1, "1"), "a", 1), Ok(1));
    assert_eq!(registry.register(&proven("a", 1, "2"), "a2", 2), Ok(1), "no stream is open yet");
    registry.connect("a2", 3).unwrap();
    assert_eq!(registry.register(&proven("b", 1, "3"), "b", 4), taken(1, "a"));
    assert!(registry.disconnect("a2", false, 5));
    assert_eq!(registry.register(&proven("b", 1, "3"), "b", 6), Ok(1), "proof needs no lease");
    let none = Err(RegistrationError::NoSuchIndex { index: 7, count: 2 });
    assert_eq!(registry.register(&proven("c", 7, "1"), "c", 7), none);
}
