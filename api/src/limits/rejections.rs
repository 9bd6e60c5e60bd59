//! Rejections that this process repeats without a look-up in the database.
//!
//! It never repeats an acceptance, so a revoked key is rejected at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use assay_core::model::secret::SecretHash;
use assay_core::{Code, Details, Error, Timestamp};

use super::recent::Recent;
use super::verdict::Verdict;

/// Time for which a rejection is repeated.
const REJECTION_LIFETIME: Duration = Duration::from_secs(30);
/// Time for which a credential that was valid has priority over others from a throttled address.
const VALID_LIFETIME: Duration = Duration::from_secs(600);
/// Window length in which look-ups and refusals are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The other credentials that a throttled address has looked up in a [`WINDOW`] without waiting.
/// Later ones wait for each other.
const LOOKUPS_OF_THROTTLED: u32 = 100;
/// Time for which a caller far beyond its rate limit is refused without a look-up.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(1);

/// A caller by its headers: the credential, and the organization that `X-Org-Id` names.
pub type Caller = (SecretHash, Option<Box<str>>);

/// Why a credential was rejected. The reason is permanent: a secret is random, so nobody can send
/// it before it exists; a revoked key or an ended session stays invalid; and a key's expiry is only
/// ever brought forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// There is no such credential, or its session has ended.
    InvalidToken,
    /// The key was revoked.
    KeyRevoked,
    /// The key has expired.
    KeyExpired {
        /// The time at which it expired.
        expired_at: Timestamp,
    },
}

impl Rejection {
    /// Returns the rejection that an error states, if it is one.
    pub fn of(error: &Error) -> Option<Self> {
        match (error.code, &error.details) {
            (Code::InvalidToken, _) => Some(Self::InvalidToken),
            (Code::KeyRevoked, Some(Details::Expired { expired_at })) => Some(Self::KeyExpired {
                expired_at: *expired_at,
            }),
            (Code::KeyRevoked, _) => Some(Self::KeyRevoked),
            _ => None,
        }
    }
}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::InvalidToken => {
                Self::new(Code::InvalidToken, "The key or session token is not valid.")
            }
            Rejection::KeyRevoked => Self::new(
                Code::KeyRevoked,
                "This key was revoked. Create another one.",
            ),
            Rejection::KeyExpired { expired_at } => Self::key_expired(expired_at),
        }
    }
}

/// A cache for rejections and refusals, which save credential look-ups.
#[derive(Default)]
pub struct RejectionCache(Mutex<Inner>);

struct Inner {
    /// Credentials that were rejected.
    rejected: Recent<SecretHash, Rejection>,
    /// Credentials that were valid recently. They are looked up nevertheless.
    accepted: Recent<SecretHash, ()>,
    /// The look-up count for each throttled address.
    lookups: Recent<Arc<str>, u32>,
    /// Refusals for callers beyond their rate limit.
    refusals: Recent<Caller, Refusals>,
}

struct Refusals {
    count: u32,
    /// The last refusal and its time, once the caller is far beyond its limit.
    repeated: Option<(Verdict, Instant)>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            rejected: Recent::new(REJECTION_LIFETIME),
            accepted: Recent::new(VALID_LIFETIME),
            lookups: Recent::new(WINDOW),
            refusals: Recent::new(WINDOW),
        }
    }
}

impl RejectionCache {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason for which this credential was rejected recently.
    pub fn rejection(&self, credential: &SecretHash) -> Option<Rejection> {
        self.inner()
            .rejected
            .get(credential, Instant::now())
            .copied()
    }

    /// Records a rejection.
    pub fn record_rejection(&self, credential: SecretHash, rejection: Rejection) {
        self.inner()
            .rejected
            .insert(credential, rejection, Instant::now());
    }

    /// Records that a credential is valid.
    pub fn record_valid(&self, credential: SecretHash) {
        let mut inner = self.inner();
        let now = Instant::now();
        // Refreshing an entry at half its lifetime suffices, and keeps `order` short.
        if inner
            .accepted
            .age(&credential, now)
            .is_none_or(|age| age > VALID_LIFETIME / 2)
        {
            inner.accepted.insert(credential, (), now);
        }
    }

    /// Returns `true` if a credential from a throttled address is looked up at once, and counts the
    /// look-up. One that was valid recently is always looked up at once, and is not counted.
    pub fn is_looked_up_at_once(&self, credential: &SecretHash, address: &Arc<str>) -> bool {
        let mut inner = self.inner();
        let now = Instant::now();
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

    /// Records that a caller was beyond its rate limit. A caller that was refused as often as its
    /// limit within a minute is then refused for a second without a look-up.
    pub fn record_refusal(&self, caller: Caller, verdict: Verdict) {
        let mut inner = self.inner();
        let now = Instant::now();
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

    /// Returns the refusal for a caller far beyond its limit, for a second and never after the
    /// refusal itself has ended.
    pub fn refusal(&self, caller: &Caller) -> Option<Verdict> {
        let mut inner = self.inner();
        let now = Instant::now();
        let (verdict, since) = inner.refusals.get(caller, now)?.repeated?;
        // Seconds are rounded up, so a refusal for one second may end earlier.
        (now < since + REFUSAL_LIFETIME && verdict.refused_for.is_some_and(|seconds| seconds > 1))
            .then_some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use assay_core::model::secret::{self, Secret, SecretKind};

    use super::*;
    use crate::limits::verdict::Allowance;

    fn credential() -> SecretHash {
        secret::read(&Secret::random(SecretKind::ApiKey).unwrap().into_text())
            .unwrap()
            .1
    }

    #[test]
    fn throttled_address_gets_few_lookups() {
        let cache = RejectionCache::default();
        let address = Arc::from("192.0.2.1");
        let valid = credential();
        cache.record_valid(valid);
        let looked_up = (0..500)
            .filter(|_| cache.is_looked_up_at_once(&credential(), &address))
            .count();
        assert_eq!(looked_up, LOOKUPS_OF_THROTTLED as usize);
        assert!((0..500).all(|_| cache.is_looked_up_at_once(&valid, &address)));
        assert!(cache.is_looked_up_at_once(&credential(), &Arc::from("192.0.2.2")));
    }

    #[test]
    fn refusal_repeats_only_far_beyond_limit() {
        let cache = RejectionCache::default();
        let caller = (credential(), None);
        let verdict = Verdict {
            refused_for: Some(30),
            allowance: Allowance {
                limit: 3,
                remaining: 0,
                reset: 0,
            },
        };
        for _ in 0..3 {
            cache.record_refusal(caller.clone(), verdict);
            assert_eq!(cache.refusal(&caller), None);
        }
        cache.record_refusal(caller.clone(), verdict);
        assert_eq!(cache.refusal(&caller), Some(verdict));
        assert_eq!(
            cache.refusal(&(caller.0, Some("org_x".into()))),
            None,
            "another organization"
        );
        cache.record_refusal(
            caller.clone(),
            Verdict {
                refused_for: Some(1),
                ..verdict
            },
        );
        assert_eq!(
            cache.refusal(&caller),
            None,
            "it may end in less than a second"
        );
    }
}
