//! A site survives the wire bit for bit, holds nothing of the truth, and hostile ones are refused by name.

use hyloc_proto::site::{SharedSite, SiteError};
use hyloc_proto::v1;
use model::scenario::{CrossSection, Motion};
use model::{ElementGrid, Scenario, System, SystemParts};
use proptest::prelude::*;
use prost::Message;

fn shared(scenario: &Scenario) -> SharedSite {
    SharedSite::new(System::new(scenario).unwrap()).unwrap()
}

fn refusal(change: impl FnOnce(&mut v1::Site)) -> String {
    let mut message = shared(&Scenario::default()).message;
    change(&mut message);
    SharedSite::from_wire(message).unwrap_err().to_string()
}

#[test]
fn a_site_survives_the_wire() {
    for count in [1, 3, 8] {
        let mut scenario = Scenario::default();
        scenario.imperfections.channel_error = 0.1;
        let scenario =
            if count == 1 { scenario.single_irs() } else { model::scenario::ring(&scenario, count).unwrap() };
        let site = shared(&scenario);
        let back = SharedSite::decode(&site.encode()).unwrap();
        assert_eq!(back, site);
        assert_eq!(back.system, System::new(&scenario).unwrap(), "K = {count}");
    }
}

/// Heights, orientations and panels survive too; a site without them is encoded as before there were any, so that its hash
/// is the same.
#[test]
fn space_survives_the_wire_and_the_plane_takes_no_room() {
    let mut scenario = Scenario::default();
    scenario.coverage.max_m[2] = 3.0;
    scenario.surface.elements = ElementGrid { columns: 4, rows: 2 };
    scenario.surface.sensors = ElementGrid { columns: 3, rows: 5 };
    scenario.irs[0].position_m[2] = 4.0;
    scenario.irs[1].roll_deg = Some(30.0);
    let site = shared(&scenario);
    assert_eq!(SharedSite::decode(&site.encode()).unwrap().system, System::new(&scenario).unwrap());
    let flat = shared(&Scenario::default()).message;
    let plane = |irs: &v1::SiteIrs| {
        irs.position.unwrap().z_m == 0.0 && (irs.elevation_rad, irs.roll_rad) == (0.0, 0.0)
    };
    assert!(flat.irs.iter().all(plane));
    assert_eq!((flat.sensor_rows, flat.element_rows), (0, 0));
    assert_ne!(site.sha256, shared(&Scenario::default()).sha256);
}

/// Whatever only the simulator knows leaves no trace: neither in the bytes nor in the hash.
#[test]
fn nothing_of_the_truth_is_in_a_site() {
    let site = shared(&Scenario::default());
    let mut other = Scenario::default();
    other.targets[0].rcs_dbsm = -3.0;
    other.targets[0].motion = Motion::Fixed { position_m: [1.0, 2.0, 0.0] };
    (other.clocks.offset_ns, other.clocks.drift_ppb, other.clocks.wander_ns) = (1.0, 5.0, 1.0);
    other.imperfections.cross_section = CrossSection::Swerling1;
    other.imperfections.second_order_reflections = true;
    assert_eq!(shared(&other).encode(), site.encode());
    // The seed is there only through what it draws: no field carries it.
    let numbers =
        format!("{:?}", v1::Site { irs: Vec::new(), ..shared(&Scenario::default().with_seed(77)).message });
    assert_eq!(numbers, format!("{:?}", v1::Site { irs: Vec::new(), ..site.message }));
}

#[test]
fn the_hash_tells_sites_apart_and_forgives_the_last_bit() {
    let site = shared(&Scenario::default());
    assert_ne!(site.sha256, shared(&Scenario::default().with_seed(2)).sha256);
    assert_ne!(site.sha256, shared(&Scenario::default().with_power_dbm(40.0)).sha256);
    assert!(matches!(SharedSite::with_hash(site.message.clone(), &[7; 32]), Err(SiteError::Hash)));
    // Another platform's sine.
    let mut nudged = SystemParts::clone(&site.system);
    nudged.irs[1].pose.orientation.azimuth_rad *= 1.0 + f64::EPSILON;
    let nudged = System::checked(nudged).unwrap();
    assert_ne!(nudged, site.system);
    assert_eq!(SharedSite::new(nudged).unwrap().sha256, site.sha256);
}

#[test]
fn hostile_sites_are_refused_by_name() {
    let cases: [(String, &str); 17] = [
        (refusal(|site| site.irs.clear()), "IRSs = 0"),
        (refusal(|site| site.irs = vec![site.irs[0].clone(); 33]), "IRSs = 33"),
        (refusal(|site| site.elements = u32::MAX), "elements = 4294967295"),
        (refusal(|site| site.sensors = 0), "sensors = 0"),
        (refusal(|site| site.sensor_rows = 3), "3 rows of 10 sensors"),
        (refusal(|site| site.element_rows = u32::MAX), "4294967295 rows of 10 elements"),
        (refusal(|site| site.irs[1].position.as_mut().unwrap().z_m = f64::NAN), "irs[1].position_m[2] = NaN"),
        (refusal(|site| site.coverage_max = None), "no coverage_max"),
        (refusal(|site| site.noise_power_w = f64::NAN), "noise_power_w = NaN"),
        (refusal(|site| site.prior_rcs_deviation_db = 1e9), "prior.deviation_db"),
        (refusal(|site| site.irs[1].streams = 9), "reflected signal of irs[1] has 1600 bytes, expected 1440"),
        (refusal(|site| site.irs[1].streams = 4096), "irs[1]"),
        (
            refusal(|site| site.irs[2].position.as_mut().unwrap().x_m = f64::INFINITY),
            "irs[2].position_m[0] = inf",
        ),
        (refusal(|site| site.irs[0].subcarriers[3] = 100), "irs[0].subcarriers[3] = 100: must be below 100"),
        (refusal(|site| site.irs[0].subcarriers = site.irs[1].subcarriers.clone()), "irs[1].subcarriers[0]"),
        (refusal(|site| site.irs[0].codes = vec![0xffu8; site.irs[0].codes.len()].into()), "codes"),
        (refusal(|site| site.irs[0].codes = site.irs[1].codes.slice(16..)), "the codes of irs[0]"),
    ];
    for (message, part) in &cases {
        assert!(message.contains(part), "{message:?} does not name {part:?}");
    }
}

proptest! {
    /// Bytes that somebody changed give a site or an error, never a panic.
    #[test]
    fn arbitrary_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = shared(&Scenario::default()).message.encode_to_vec();
        // Most of a site is matrices: change its beginning, where the shapes are.
        for (at, value) in changes {
            let at = at.index(400);
            bytes[at] = value;
        }
        let _ = SharedSite::decode(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        let _ = SharedSite::decode(&bytes);
    }
}
