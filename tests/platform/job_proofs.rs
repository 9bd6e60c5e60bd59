//! Model checking with `job_model`: every reachable state keeps all promises, and flaws that break
//! one are found.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use assay_core::model::job::{FailureCode, JobStatus};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use stateright::{Checker as _, HasDiscoveries, Model, Property};

use crate::job_model::{Action, Flaw, Job, Jobs, MAX_ATTEMPTS, State};

impl Model for Jobs {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![Self::START]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(Self::all_actions(state));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut after = self.step(*state, action);
        after.took_illegal_step |= !Self::is_legal_step(state, &after);
        (after != *state).then_some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn each(state: &State, holds: impl Fn(&Job) -> bool) -> bool {
            state.jobs.iter().flatten().all(holds)
        }
        vec![
            Property::always(
                "a result is that of the last attempt",
                |_, state: &State| {
                    each(state, |row| row.result.is_none_or(|by| by == row.attempts))
                },
            ),
            Property::always("a job finishes once", |_, state| {
                each(state, |row| {
                    row.times_finished == u8::from(row.status.is_final())
                })
            }),
            Property::always("four attempts at most", |_, state| {
                each(state, |row| row.attempts <= MAX_ATTEMPTS)
            }),
            Property::always("a queued job has an attempt left", |_, state: &State| {
                each(state, |row| {
                    row.status != JobStatus::Queued || row.attempts < MAX_ATTEMPTS
                })
            }),
            Property::always("a charge stays or is refunded once", |_, state: &State| {
                each(state, |row| row.refunds == u8::from(row.is_refunded()))
            }),
            Property::always("a running job has a holder", |_, state| {
                each(state, |row| {
                    (row.status == JobStatus::Running) == row.holder.is_some()
                })
            }),
            Property::always(
                "final states are permanent, others only advance",
                |_, state: &State| !state.took_illegal_step,
            ),
            Property::always("every job can finish", Self::all_can_finish),
            Property::sometimes("a late write meets a later attempt", |_, state: &State| {
                state.jobs.iter().flatten().any(|row| {
                    row.status == JobStatus::Running
                        && row.attempts == MAX_ATTEMPTS
                        && row.live_attempts == 0b1_1110
                })
            }),
            Property::sometimes(
                "all attempts are used up, and both jobs failed",
                |_, state: &State| {
                    state.jobs.iter().all(|row| {
                        row.is_some_and(|row| {
                            row.attempts == MAX_ATTEMPTS
                                && row.failure == Some(FailureCode::Timeout)
                        })
                    })
                },
            ),
            Property::sometimes("the last attempt succeeds", |_, state: &State| {
                state
                    .jobs
                    .iter()
                    .flatten()
                    .any(|row| row.result == Some(MAX_ATTEMPTS))
            }),
        ]
    }
}

impl ReferenceStateMachine for Jobs {
    type State = State;
    type Transition = Action;

    fn init_state() -> BoxedStrategy<State> {
        Just(Self::START).boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Action> {
        let all = Self::all_actions(state);
        let those = |wanted: &dyn Fn(&Action) -> bool| {
            let some: Vec<_> = all.iter().copied().filter(wanted).collect();
            select(if some.is_empty() { all.clone() } else { some })
        };
        // Uniformly random actions would mostly change nothing, finish jobs at once, and rarely
        // write late.
        let after = |action: &Action| Self::default().step(*state, *action);
        let open = |state: &State| {
            state
                .jobs
                .iter()
                .flatten()
                .filter(|job| !job.status.is_final())
                .count()
        };
        let effective_actions = those(&|action| after(action).jobs != state.jobs);
        let onward = those(&|action| {
            !matches!(action, Action::LoseAttempt { .. })
                && after(action).jobs != state.jobs
                && open(&after(action)) >= open(state)
        });
        let late = those(&|action| action.is_late(state));
        prop_oneof![4 => onward, 1 => effective_actions, 3 => late, 1 => select(all)].boxed()
    }

    fn apply(state: State, action: &Action) -> State {
        Self::default().step(state, *action)
    }

    fn preconditions(state: &State, action: &Action) -> bool {
        Self::all_actions(state).contains(action)
    }
}

/// Counts a step. Shrinking needs the executed step count.
pub fn count_step(counter: Option<&Arc<AtomicUsize>>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// The shortest failing sequence seen so far. Shrinking may report a longer one.
#[derive(Debug, Default)]
pub struct Shortest(Mutex<Option<Vec<Action>>>);

impl Shortest {
    /// Keeps a failing sequence if it is the shortest so far.
    pub fn note(&self, actions: &[Action]) {
        let mut shortest = self.0.lock().unwrap();
        if shortest
            .as_ref()
            .is_none_or(|shortest| actions.len() < shortest.len())
        {
            *shortest = Some(actions.to_vec());
        }
    }

    /// Returns the shortest failing sequence, if any.
    pub fn get(&self) -> Option<Vec<Action>> {
        self.0.lock().unwrap().clone()
    }
}

/// Returns the test failure for a difference between the real system and the model.
pub fn differ(what: &str, real: &impl Debug, model: &impl Debug) -> TestCaseError {
    TestCaseError::fail(format!("{what}\n real: {real:?}\nmodel: {model:?}"))
}

/// Returns a configuration with a fixed seed, so that each run uses the same sequences.
pub fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    }
}

#[test]
fn every_reachable_state_keeps_promises() {
    let start = Instant::now();
    let checker = Jobs::default().checker().threads(2).spawn_bfs().join();
    println!(
        "{} states, {} steps, {} deep, {:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        start.elapsed()
    );
    checker.assert_properties();
    assert!(checker.is_done(), "not all states were visited");
    assert!(checker.unique_state_count() > 100_000, "too few states");
}

#[test]
fn model_finds_planted_flaws() {
    for (flaw, broken) in [
        (Flaw::NoFence, "a result is that of the last attempt"),
        (Flaw::UnlimitedAttempts, "four attempts at most"),
        (
            Flaw::RefundsAllCancelled,
            "a charge stays or is refunded once",
        ),
        (Flaw::NoSweep, "every job can finish"),
    ] {
        let found = Jobs { flaw: Some(flaw) }
            .checker()
            .finish_when(HasDiscoveries::AnyOf([broken].into()))
            .spawn_bfs()
            .join();
        let path = found.assert_any_discovery(broken).into_actions();
        println!("{flaw:?}: {path:?}");
    }
}

#[test]
fn shrinking_reports_shortest_failure() {
    let flawed = Jobs {
        flaw: Some(Flaw::NoFence),
    };
    let shortest = Shortest::default();
    let outcome = TestRunner::new(config(2_000)).run(
        &Jobs::sequential_strategy(10..40),
        |(mut state, actions, counter)| {
            for (at, action) in actions.iter().enumerate() {
                count_step(counter.as_ref());
                let after = Jobs::default().step(state, *action);
                if flawed.step(state, *action) != after {
                    shortest.note(&actions[..=at]);
                    return Err(differ(
                        "a job differs",
                        &flawed.step(state, *action),
                        &after,
                    ));
                }
                state = after;
            }
            Ok(())
        },
    );
    assert!(
        matches!(outcome, Err(TestError::Fail(..))),
        "the flaw was not found: {outcome:?}"
    );
    let actions = shortest.get().unwrap();
    println!("{actions:?}");
    // Submit, claim, reclaim, claim again, and then the late write. A few unrelated actions may
    // remain.
    assert!(
        actions.len() <= 10 && matches!(actions.last(), Some(Action::Finish { .. })),
        "{actions:?}"
    );
}
