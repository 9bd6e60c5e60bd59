//! Entries that expire, in bounded memory.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Largest entry count.
const CAPACITY: usize = 10_000;

/// Entries that expire after a fixed time, the oldest first when there are too many.
pub struct Recent<K, V> {
    entries: HashMap<K, (Instant, V)>,
    /// The keys in insertion order. A key that was inserted again is listed again.
    order: VecDeque<(Instant, K)>,
    lifetime: Duration,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// Creates an empty collection.
    pub fn new(lifetime: Duration) -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            lifetime,
        }
    }

    /// Returns the time since the key was inserted.
    pub fn age(&self, key: &K, now: Instant) -> Option<Duration> {
        self.entries.get(key).map(|(at, _)| now - *at)
    }

    /// Returns the value for a key that has not expired.
    pub fn get(&mut self, key: &K, now: Instant) -> Option<&mut V> {
        let lifetime = self.lifetime;
        self.entries
            .get_mut(key)
            .filter(|(at, _)| *at + lifetime > now)
            .map(|(_, value)| value)
    }

    /// Inserts a key, again if it exists.
    pub fn insert(&mut self, key: K, value: V, now: Instant) {
        // At most two, so that no insertion removes many entries under the lock.
        for _ in 0..2 {
            let is_full = self.order.len() >= CAPACITY;
            let lifetime = self.lifetime;
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
    use super::*;

    #[test]
    fn entries_expire_and_stay_within_capacity() {
        let mut recent = Recent::new(Duration::from_secs(10));
        let start = Instant::now();
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
        assert_eq!(recent.entries.len(), 10_000, "expired entries are removed");
    }
}
