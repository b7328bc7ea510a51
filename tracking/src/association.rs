//! Which detection belongs to which track: probabilities over joint association events.
//!
//! A joint event gives every track one of its gated detections or none, and no detection to two tracks. With detection
//! probability P_D, gate probability P_G, prior existence r_t, density g_tj of detection j under track t and density
//! lambda of detections that belong to no track, its probability is proportional to (Musicki and Evans, Joint Integrated
//! Probabilistic Data Association, IEEE Trans. Aerosp. Electron. Syst. 40(3), 2004, eq. 13)
//!
//! `prod_missed (1 - P_D P_G r_t) prod_assigned P_D r_t g_tj / lambda`.
//!
//! Events are enumerated exactly up to a limit; the work is bounded by the limit times the number of tracks, because
//! every prefix of an event can be completed. Beyond the limit the marginal probabilities come from belief propagation
//! (Williams and Lau, Approximate evaluation of marginal association probabilities with belief propagation, IEEE Trans.
//! Aerosp. Electron. Syst. 50(4), 2014), which converges for every input and costs the number of gated pairs per iteration.

/// More tracks than this are not enumerated.
const MAX_ENUMERATED_TRACKS: usize = 64;
/// Iterations of belief propagation, and the change at which it ends.
const ITERATIONS: usize = 200;
const CHANGE: f64 = 1e-10;
/// Largest logarithm of a weight in belief propagation.
const MAX_LOG: f64 = 300.0;

/// A detection inside the gate of a track.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GatedDetection {
    /// Which one.
    pub detection: usize,
    /// Logarithm of P_D r g / lambda.
    pub log_weight: f64,
    /// Logarithm of g.
    pub log_density: f64,
}

/// A track with what it may have caused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contender {
    /// Logarithm of 1 - P_D P_G r.
    pub missed_log: f64,
    /// Detections inside its gate.
    pub gated: Vec<GatedDetection>,
}

/// A joint event: for every track the index into its gated detections, or none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AssociationEvent {
    pub choice: Vec<Option<usize>>,
    pub log_weight: f64,
}

/// Marginal probabilities of one track.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Marginals {
    /// That no detection belongs to it, whether it exists or not.
    pub missed: f64,
    /// That the gated detection belongs to it.
    pub gated: Vec<f64>,
}

/// All joint events, or none if there are more than `limit`.
pub(crate) fn enumerate(contenders: &[&Contender], limit: usize) -> Option<Vec<AssociationEvent>> {
    if contenders.len() > MAX_ENUMERATED_TRACKS {
        return None;
    }
    let mut search =
        EventSearch { contenders, limit, taken: Vec::new(), choice: Vec::new(), events: Vec::new() };
    search.extend(0.0).then_some(search.events)
}

struct EventSearch<'a> {
    contenders: &'a [&'a Contender],
    limit: usize,
    taken: Vec<usize>,
    choice: Vec<Option<usize>>,
    events: Vec<AssociationEvent>,
}

impl EventSearch<'_> {
    /// Completes the present choice in all ways; false if there are too many.
    fn extend(&mut self, log_weight: f64) -> bool {
        let Some(&contender) = self.contenders.get(self.choice.len()) else {
            self.events.push(AssociationEvent { choice: self.choice.clone(), log_weight });
            return self.events.len() <= self.limit;
        };
        self.choice.push(None);
        let mut fits = self.extend(log_weight + contender.missed_log);
        self.choice.pop();
        for (index, gated) in contender.gated.iter().enumerate() {
            if !fits || self.taken.contains(&gated.detection) {
                continue;
            }
            self.taken.push(gated.detection);
            self.choice.push(Some(index));
            fits = self.extend(log_weight + gated.log_weight);
            self.choice.pop();
            self.taken.pop();
        }
        fits
    }
}

/// The probabilities of the events.
pub(crate) fn normalise(events: &[AssociationEvent]) -> Vec<f64> {
    let largest = events.iter().map(|event| event.log_weight).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = events.iter().map(|event| (event.log_weight - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Marginals of all tracks over events with these probabilities.
pub(crate) fn marginals(
    contenders: &[&Contender],
    events: &[AssociationEvent],
    probabilities: &[f64],
) -> Vec<Marginals> {
    let mut found: Vec<Marginals> = contenders
        .iter()
        .map(|track| Marginals { missed: 0.0, gated: vec![0.0; track.gated.len()] })
        .collect();
    for (event, probability) in events.iter().zip(probabilities) {
        for (track, choice) in found.iter_mut().zip(&event.choice) {
            match choice {
                Some(index) => track.gated[*index] += probability,
                None => track.missed += probability,
            }
        }
    }
    found
}

/// Marginals of all tracks by belief propagation.
pub(crate) fn propagate(contenders: &[&Contender]) -> Vec<Marginals> {
    let weights: Vec<Vec<f64>> = contenders
        .iter()
        .map(|track| {
            track.gated.iter().map(|gated| (gated.log_weight - track.missed_log).min(MAX_LOG).exp()).collect()
        })
        .collect();
    let count = contenders.iter().flat_map(|track| &track.gated).map(|gated| gated.detection + 1).max();
    // Messages from detections to tracks: how free the detection is for the track.
    let mut free: Vec<Vec<f64>> = weights.iter().map(|track| vec![1.0; track.len()]).collect();
    for _ in 0..ITERATIONS {
        let mut claims = vec![0.0; count.unwrap_or(0)];
        let messages: Vec<Vec<f64>> = weights
            .iter()
            .zip(&free)
            .map(|(weights, free)| {
                let products: Vec<f64> =
                    weights.iter().zip(free).map(|(weight, free)| weight * free).collect();
                let others = without_each(&products);
                weights.iter().zip(others).map(|(weight, others)| weight / (1.0 + others)).collect()
            })
            .collect();
        for (track, messages) in contenders.iter().zip(&messages) {
            for (gated, message) in track.gated.iter().zip(messages) {
                claims[gated.detection] += message;
            }
        }
        let mut change = 0.0_f64;
        for ((track, messages), free) in contenders.iter().zip(&messages).zip(&mut free) {
            for ((gated, message), free) in track.gated.iter().zip(messages).zip(free) {
                let next = 1.0 / (1.0 + (claims[gated.detection] - message).max(0.0));
                change = change.max((next - *free).abs());
                *free = next;
            }
        }
        if change < CHANGE {
            break;
        }
    }
    weights
        .iter()
        .zip(&free)
        .map(|(weights, free)| {
            let products: Vec<f64> = weights.iter().zip(free).map(|(weight, free)| weight * free).collect();
            let sum = 1.0 + products.iter().sum::<f64>();
            Marginals { missed: 1.0 / sum, gated: products.iter().map(|product| product / sum).collect() }
        })
        .collect()
}

/// The sum of all values but one, for each of them, without cancellation.
fn without_each(values: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; values.len()];
    let (mut before, mut after) = (0.0, 0.0);
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += before;
        before += value;
    }
    for (sum, value) in sums.iter_mut().zip(values).rev() {
        *sum += after;
        after += value;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(existence: f64, gated: &[(usize, f64)]) -> Contender {
        let gated = gated.iter().map(|&(detection, ratio)| GatedDetection {
            detection,
            log_weight: (existence * ratio).ln(),
            log_density: 0.0,
        });
        Contender { missed_log: (1.0 - 0.9 * existence).ln(), gated: gated.collect() }
    }

    #[test]
    fn the_number_of_events_is_known() {
        // Sum over k of C(n, k)^2 k! events of n tracks that share n detections: 34 for n = 3, 1546 for n = 5.
        for (count, expected) in [(3, 34), (5, 1546)] {
            let gated: Vec<_> = (0..count).map(|detection| (detection, 2.0)).collect();
            let tracks = vec![contender(0.5, &gated); count];
            let tracks: Vec<&Contender> = tracks.iter().collect();
            assert_eq!(enumerate(&tracks, expected).unwrap().len(), expected);
            assert_eq!(enumerate(&tracks, expected - 1), None);
        }
    }

    #[test]
    fn belief_propagation_is_exact_without_cycles_and_close_with_them() {
        let chain = [contender(0.7, &[(0, 3.0), (1, 8.0)]), contender(0.4, &[(1, 5.0), (2, 0.1)])];
        let cycle = [contender(0.7, &[(0, 3.0), (1, 8.0)]), contender(0.4, &[(0, 5.0), (1, 0.1)])];
        for (tracks, tolerance) in [(chain, 1e-8), (cycle, 0.03)] {
            let tracks: Vec<&Contender> = tracks.iter().collect();
            let events = enumerate(&tracks, 100).unwrap();
            let exact = marginals(&tracks, &events, &normalise(&events));
            for (exact, found) in exact.iter().zip(propagate(&tracks)) {
                assert!((exact.missed - found.missed).abs() < tolerance, "{exact:?} {found:?}");
                for (exact, found) in exact.gated.iter().zip(&found.gated) {
                    assert!((exact - found).abs() < tolerance, "{exact} {found}");
                }
            }
        }
    }

    #[test]
    fn extreme_weights_stay_finite() {
        let extreme = |log_weight| Contender {
            missed_log: -9.0,
            gated: (0..3)
                .map(|detection| GatedDetection { detection, log_weight, log_density: 0.0 })
                .collect(),
        };
        for log_weight in [f64::NEG_INFINITY, -800.0, 800.0] {
            let tracks = vec![extreme(log_weight); 3];
            let tracks: Vec<&Contender> = tracks.iter().collect();
            for track in propagate(&tracks) {
                let sum = track.missed + track.gated.iter().sum::<f64>();
                assert!((sum - 1.0).abs() < 1e-9, "{track:?}");
            }
        }
    }
}
