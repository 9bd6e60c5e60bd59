//! The packages in memory. A package is loaded on first use, and the least recently used ones are
//! unloaded when the memory for packages is used up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use assay_core::model::package::PackageName;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use tokio::sync::watch;

use crate::package::{LoadError, Package, load};

/// The time for which callers get a failed load's error without another attempt. Otherwise every
/// call to a corrupt package would read it whole.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);

type Loaded = Result<Arc<Package>, LoadError>;

/// The packages in memory, and those that are being loaded.
#[derive(Clone)]
pub struct Packages {
    artifacts: Artifacts,
    memory: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    entries: HashMap<PackageName, Entry>,
    /// The memory for packages that are loaded or being loaded, in bytes.
    used: u64,
    /// The call count so far, which orders packages by their last use.
    calls: u64,
}

enum Entry {
    Loading(watch::Receiver<Option<Loaded>>),
    Loaded {
        package: Arc<Package>,
        bytes: u64,
        last_call: u64,
    },
    Failed {
        error: LoadError,
        at: Instant,
    },
}

impl Packages {
    /// Creates an empty package set that uses at most `memory` bytes.
    pub fn new(artifacts: Artifacts, memory: u64) -> Self {
        let packages = Self {
            artifacts,
            memory,
            state: Arc::default(),
        };
        packages.lock().record();
        packages
    }

    /// Returns a package that is in memory, and records its use.
    pub fn loaded(&self, name: &PackageName) -> Option<Arc<Package>> {
        self.lock().loaded(name)
    }

    /// Returns a package. Loads it if it is not in memory; callers for the same package wait for
    /// the same load, which continues if they do not wait any more.
    pub async fn get(&self, name: &PackageName) -> Loaded {
        let mut load = {
            let mut state = self.lock();
            if let Some(package) = state.loaded(name) {
                return Ok(package);
            }
            match state.entries.get(name) {
                Some(Entry::Failed { error, at }) if at.elapsed() < FAILURE_LIFETIME => {
                    return Err(error.clone());
                }
                // A load whose sender is gone has panicked.
                Some(Entry::Loading(load)) if load.has_changed().is_ok() => load.clone(),
                _ => self.start_load(&mut state, name),
            }
        };
        match load.wait_for(Option::is_some).await {
            Ok(loaded) => loaded.clone().unwrap_or(Err(LoadError::Internal)),
            Err(_) => Err(LoadError::Internal),
        }
    }

    fn start_load(&self, state: &mut State, name: &PackageName) -> watch::Receiver<Option<Loaded>> {
        let (done, load) = watch::channel(None);
        state.entries.retain(|_, entry| match entry {
            Entry::Failed { at, .. } => at.elapsed() < FAILURE_LIFETIME,
            Entry::Loading(_) | Entry::Loaded { .. } => true,
        });
        state
            .entries
            .insert(name.clone(), Entry::Loading(load.clone()));
        let (packages, name) = (self.clone(), name.clone());
        tokio::spawn(async move {
            let loaded = packages.load(&name).await;
            done.send_replace(Some(loaded));
        });
        load
    }

    async fn load(&self, name: &PackageName) -> Loaded {
        let start = Instant::now();
        let loaded = load(&self.artifacts, name, |bytes| self.reserve(bytes)).await;
        let mut state = self.lock();
        let loaded = loaded.and_then(|(package, reservation)| {
            // From here on, the memory is the model's.
            reservation.end(&mut state);
            let bytes = package.model.bytes() as u64;
            state.reserve(bytes, self.memory)?;
            Ok((Arc::new(package), bytes))
        });
        let (outcome, entry, result) = match loaded {
            Ok((package, bytes)) => {
                let load_ms = start.elapsed().as_millis() as u64;
                tracing::info!(package = %name, bytes, load_ms, "package loaded");
                let entry = Entry::Loaded {
                    package: Arc::clone(&package),
                    bytes,
                    last_call: state.next_call(),
                };
                ("loaded", entry, Ok(package))
            }
            Err(error) => {
                tracing::warn!(package = %name, error = error.log_text(), "package not loaded");
                let entry = Entry::Failed {
                    error: error.clone(),
                    at: Instant::now(),
                };
                (error.outcome(), entry, Err(error))
            }
        };
        state.entries.insert(name.clone(), entry);
        state.record();
        metrics::counter!(prometheus::ENGINE_PACKAGE_LOADS, "outcome" => outcome).increment(1);
        result
    }

    /// Reserves memory for a package, and unloads others if necessary.
    fn reserve(&self, bytes: u64) -> Result<Reservation, LoadError> {
        self.lock().reserve(bytes, self.memory)?;
        Ok(Reservation {
            bytes,
            state: Arc::clone(&self.state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reserved memory, returned on drop.
struct Reservation {
    bytes: u64,
    state: Arc<Mutex<State>>,
}

impl Reservation {
    /// Returns the memory to a state that is locked already.
    fn end(mut self, state: &mut State) {
        state.used = state.used.saturating_sub(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = lock(&self.state);
            state.used = state.used.saturating_sub(self.bytes);
        }
    }
}

impl State {
    fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    fn loaded(&mut self, name: &PackageName) -> Option<Arc<Package>> {
        let call = self.next_call();
        match self.entries.get_mut(name)? {
            Entry::Loaded {
                package, last_call, ..
            } => {
                *last_call = call;
                Some(Arc::clone(package))
            }
            Entry::Loading(_) | Entry::Failed { .. } => None,
        }
    }

    fn reserve(&mut self, bytes: u64, memory: u64) -> Result<(), LoadError> {
        if bytes > memory {
            return Err(LoadError::TooLarge { bytes, memory });
        }
        while self.used.saturating_add(bytes) > memory {
            self.unload_least_recently_used()
                .ok_or(LoadError::NoMemory)?;
        }
        self.used += bytes;
        Ok(())
    }

    /// Unloads a package. Calls in progress keep it until they end. Returns `None` if there is none.
    fn unload_least_recently_used(&mut self) -> Option<()> {
        let last_call = |entry: &Entry| match entry {
            Entry::Loaded { last_call, .. } => Some(*last_call),
            Entry::Loading(_) | Entry::Failed { .. } => None,
        };
        let (_, name) = self
            .entries
            .iter()
            .filter_map(|(name, entry)| Some((last_call(entry)?, name.clone())))
            .min_by_key(|(last_call, _)| *last_call)?;
        if let Some(Entry::Loaded { bytes, .. }) = self.entries.remove(&name) {
            self.used = self.used.saturating_sub(bytes);
            tracing::info!(package = %name, bytes, "package unloaded");
            metrics::counter!(prometheus::ENGINE_PACKAGES_UNLOADED).increment(1);
        }
        self.record();
        Some(())
    }

    /// Records the loaded packages' Prometheus metrics.
    fn record(&self) {
        let sizes = self.entries.values().filter_map(|entry| match entry {
            Entry::Loaded { bytes, .. } => Some(*bytes),
            Entry::Loading(_) | Entry::Failed { .. } => None,
        });
        let (packages, bytes) =
            sizes.fold((0, 0), |(packages, sum), bytes| (packages + 1, sum + bytes));
        metrics::gauge!(prometheus::ENGINE_PACKAGES).set(f64::from(packages));
        metrics::gauge!(prometheus::ENGINE_PACKAGES_BYTES).set(bytes as f64);
    }
}

#[cfg(test)]
mod tests;
