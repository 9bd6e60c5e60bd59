//! Rejections that this process repeats without asking the database. It remembers no acceptance: a revoked key is rejected
//! at once.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use assay_core::Code;
use assay_core::model::secret::SecretHash;

use crate::limits::Verdict;

/// Largest number of entries of each kind.
const CAPACITY: usize = 10_000;
/// How long a rejection is remembered.
const REJECTED: Duration = Duration::from_secs(30);
/// How long a credential that was valid has priority over others from a throttled address.
const ACCEPTED: Duration = Duration::from_secs(600);
/// Length of the window in which look-ups and refusals are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// How many other credentials from a throttled address are looked up in a [`WINDOW`].
const LOOKUPS_OF_THROTTLED: u32 = 100;
/// How long a caller far beyond its limit is refused without a look-up.
const REFUSED: Duration = Duration::from_secs(1);

/// A caller as its headers name it: the credential, and the organization that it asks for.
pub type Caller = (SecretHash, Option<Box<str>>);

/// See the module.
#[derive(Default)]
pub struct Lookups(Mutex<Inner>);

struct Inner {
    /// Credentials that do not exist, or are revoked. Neither ever changes: a secret is random, so that nobody can send it
    /// before it was created, and a revoked key or an ended session stays so. A rejection that can be undone must have another
    /// code than `invalid_token` and `key_revoked`.
    rejected: Recent<SecretHash, Code>,
    /// Credentials that were valid lately. They are looked up all the same.
    accepted: Recent<SecretHash, ()>,
    /// Look-ups for throttled addresses.
    lookups: Recent<Arc<str>, u32>,
    /// Refusals of callers beyond their limit.
    refusals: Recent<Caller, Refusals>,
}

struct Refusals {
    count: u32,
    /// The last one, and since when it is repeated.
    repeated: Option<(Verdict, Instant)>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            rejected: Recent::new(REJECTED),
            accepted: Recent::new(ACCEPTED),
            lookups: Recent::new(WINDOW),
            refusals: Recent::new(WINDOW),
        }
    }
}

impl Lookups {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why this credential was rejected just now.
    pub fn rejection(&self, credential: &SecretHash) -> Option<Code> {
        self.inner()
            .rejected
            .get(credential, Instant::now())
            .copied()
    }

    /// Notes that a credential was rejected, with `invalid_token` or `key_revoked`.
    pub fn rejected(&self, credential: SecretHash, code: Code) {
        self.inner()
            .rejected
            .insert(credential, code, Instant::now());
    }

    /// Notes that a credential is valid.
    pub fn accepted(&self, credential: SecretHash) {
        let (mut inner, now) = (self.inner(), Instant::now());
        // Once in a while suffices.
        if inner
            .accepted
            .age(&credential, now)
            .is_none_or(|age| age > ACCEPTED / 2)
        {
            inner.accepted.insert(credential, (), now);
        }
    }

    /// Whether a credential from a throttled address is looked up. One that was valid lately always is.
    pub fn may_look_up(&self, credential: &SecretHash, address: &Arc<str>) -> bool {
        let (mut inner, now) = (self.inner(), Instant::now());
        if inner.accepted.get(credential, now).is_some() {
            return true;
        }
        match inner.lookups.get(address, now) {
            Some(lookups) => {
                *lookups = lookups.saturating_add(1);
                *lookups <= LOOKUPS_OF_THROTTLED
            }
            None => {
                inner.lookups.insert(Arc::clone(address), 1, now);
                true
            }
        }
    }

    /// Notes that a caller was beyond its limit. One who was refused as often as its limit in a minute is then refused for a
    /// second without a look-up.
    pub fn refused(&self, caller: Caller, verdict: Verdict) {
        let (mut inner, now) = (self.inner(), Instant::now());
        match inner.refusals.get(&caller, now) {
            Some(refusals) => {
                refusals.count = refusals.count.saturating_add(1);
                refusals.repeated =
                    (refusals.count > verdict.allowance.limit).then_some((verdict, now));
            }
            None => inner.refusals.insert(
                caller,
                Refusals {
                    count: 1,
                    repeated: None,
                },
                now,
            ),
        }
    }

    /// The refusal of a caller far beyond its limit, for a second, and never beyond the refusal itself.
    pub fn refusal(&self, caller: &Caller) -> Option<Verdict> {
        let (mut inner, now) = (self.inner(), Instant::now());
        let (verdict, since) = inner.refusals.get(caller, now)?.repeated?;
        // A refusal that said one second may have been for less.
        (now < since + REFUSED && verdict.refused_for.is_some_and(|seconds| seconds > 1))
            .then_some(verdict)
    }
}

/// Entries that expire after a fixed time, the oldest first when there are too many.
struct Recent<K, V> {
    entries: HashMap<K, (Instant, V)>,
    /// Every entry once, in the order of insertion. One that was inserted again is there again.
    order: VecDeque<(Instant, K)>,
    lifetime: Duration,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    fn new(lifetime: Duration) -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            lifetime,
        }
    }

    fn age(&self, key: &K, now: Instant) -> Option<Duration> {
        self.entries.get(key).map(|(at, _)| now - *at)
    }

    fn get(&mut self, key: &K, now: Instant) -> Option<&mut V> {
        let lifetime = self.lifetime;
        self.entries
            .get_mut(key)
            .filter(|(at, _)| *at + lifetime > now)
            .map(|(_, value)| value)
    }

    fn insert(&mut self, key: K, value: V, now: Instant) {
        // Two at most, so that no insertion clears many under the lock.
        for _ in 0..2 {
            let (is_full, lifetime) = (self.order.len() >= CAPACITY, self.lifetime);
            let Some((at, key)) = self
                .order
                .pop_front_if(|(at, _)| is_full || *at + lifetime <= now)
            else {
                break;
            };
            if self
                .entries
                .get(&key)
                .is_some_and(|(current, _)| *current == at)
            {
                self.entries.remove(&key);
            }
        }
        self.order.push_back((now, key.clone()));
        self.entries.insert(key, (now, value));
    }
}

#[cfg(test)]
mod tests {
    use assay_core::model::secret::{self, Secret, SecretKind};

    use super::*;
    use crate::limits::Allowance;

    fn credential() -> SecretHash {
        secret::read(&Secret::random(SecretKind::ApiKey).unwrap().into_text())
            .unwrap()
            .1
    }

    #[test]
    fn entries_expire_and_never_exceed_the_capacity() {
        let (mut recent, start) = (Recent::new(Duration::from_secs(10)), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        recent.insert(0, "first", at(0));
        recent.insert(0, "again", at(5));
        assert_eq!(recent.get(&0, at(14)), Some(&mut "again"));
        assert_eq!(recent.get(&0, at(15)), None);
        for number in 1..50_000 {
            recent.insert(number, "many", at(16));
        }
        assert!(recent.entries.len() <= CAPACITY && recent.order.len() <= CAPACITY);
        assert_eq!(
            (
                recent.get(&1, at(16)).copied(),
                recent.get(&49_999, at(16)).copied()
            ),
            (None, Some("many"))
        );
        for number in 0..10_000 {
            recent.insert(100_000 + number, "later", at(30));
        }
        assert_eq!(recent.entries.len(), 10_000, "what has expired is gone");
    }

    #[test]
    fn throttled_address_has_few_lookups_and_valid_credentials_all() {
        let (lookups, address, valid) = (Lookups::default(), Arc::from("192.0.2.1"), credential());
        lookups.accepted(valid);
        let looked_up = (0..500)
            .filter(|_| lookups.may_look_up(&credential(), &address))
            .count();
        assert_eq!(looked_up, LOOKUPS_OF_THROTTLED as usize);
        assert!((0..500).all(|_| lookups.may_look_up(&valid, &address)));
        assert!(lookups.may_look_up(&credential(), &Arc::from("192.0.2.2")));
    }

    #[test]
    fn refusal_is_repeated_only_far_beyond_the_limit() {
        let (lookups, caller) = (Lookups::default(), (credential(), None));
        let verdict = Verdict {
            refused_for: Some(30),
            allowance: Allowance {
                limit: 3,
                remaining: 0,
                reset: 0,
            },
        };
        for _ in 0..3 {
            lookups.refused(caller.clone(), verdict);
            assert_eq!(lookups.refusal(&caller), None);
        }
        lookups.refused(caller.clone(), verdict);
        assert_eq!(lookups.refusal(&caller), Some(verdict));
        assert_eq!(
            lookups.refusal(&(caller.0, Some("org_x".into()))),
            None,
            "another organization"
        );
        lookups.refused(
            caller.clone(),
            Verdict {
                refused_for: Some(1),
                ..verdict
            },
        );
        assert_eq!(
            lookups.refusal(&caller),
            None,
            "it may be over in less than a second"
        );
    }
}
