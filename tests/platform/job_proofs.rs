//! The model of `job_model`, checked: in every state that can be reached all promises hold, and what would break one is found.

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

use crate::job_model::{Action, Flaw, Job, Jobs, State, TRIES};

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
        after.astray |= !Self::is_right(state, &after);
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
            Property::always("a job ends once", |_, state| {
                each(state, |row| row.ends == u8::from(row.status.is_final()))
            }),
            Property::always("four tries at most", |_, state| {
                each(state, |row| row.attempts <= TRIES)
            }),
            Property::always("what waits has a try left", |_, state: &State| {
                each(state, |row| {
                    row.status != JobStatus::Queued || row.attempts < TRIES
                })
            }),
            Property::always(
                "a charge is held unless it is given back, once",
                |_, state: &State| each(state, |row| row.refunds == u8::from(row.is_given_back())),
            ),
            Property::always("what runs is held", |_, state| {
                each(state, |row| {
                    (row.status == JobStatus::Running) == row.holder.is_some()
                })
            }),
            Property::always(
                "what is final stays, and the rest only goes on",
                |_, state: &State| !state.astray,
            ),
            Property::always("every job can end", Self::all_end),
            Property::sometimes("a late write meets a later attempt", |_, state: &State| {
                state.jobs.iter().flatten().any(|row| {
                    row.status == JobStatus::Running
                        && row.attempts == TRIES
                        && row.hands == 0b1_1110
                })
            }),
            Property::sometimes(
                "all tries are used up, and both jobs failed",
                |_, state: &State| {
                    state.jobs.iter().all(|row| {
                        row.is_some_and(|row| {
                            row.attempts == TRIES && row.failure == Some(FailureCode::Timeout)
                        })
                    })
                },
            ),
            Property::sometimes("the last try succeeds", |_, state: &State| {
                state
                    .jobs
                    .iter()
                    .flatten()
                    .any(|row| row.result == Some(TRIES))
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
        // By chance alone, most would change nothing, jobs would end at once, and few writes would come late.
        let after = |action: &Action| Self::default().step(*state, *action);
        let open = |state: &State| {
            state
                .jobs
                .iter()
                .flatten()
                .filter(|job| !job.status.is_final())
                .count()
        };
        let of_effect = those(&|action| after(action).jobs != state.jobs);
        let onward = those(&|action| {
            !matches!(action, Action::Forget { .. })
                && after(action).jobs != state.jobs
                && open(&after(action)) >= open(state)
        });
        let late = those(&|action| action.is_late(state));
        prop_oneof![4 => onward, 1 => of_effect, 3 => late, 1 => select(all)].boxed()
    }

    fn apply(state: State, action: &Action) -> State {
        Self::default().step(state, *action)
    }

    fn preconditions(state: &State, action: &Action) -> bool {
        Self::all_actions(state).contains(action)
    }
}

/// Shrinking wants to know how far a sequence came.
pub fn counted(counter: Option<&Arc<AtomicUsize>>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// The shortest sequence that was seen to fail. What is reported after shrinking need not be it.
#[derive(Debug, Default)]
pub struct Shortest(Mutex<Option<Vec<Action>>>);

impl Shortest {
    pub fn note(&self, actions: &[Action]) {
        let mut shortest = self.0.lock().unwrap();
        if shortest
            .as_ref()
            .is_none_or(|shortest| actions.len() < shortest.len())
        {
            *shortest = Some(actions.to_vec());
        }
    }

    pub fn get(&self) -> Option<Vec<Action>> {
        self.0.lock().unwrap().clone()
    }
}

pub fn differ(what: &str, real: &impl Debug, model: &impl Debug) -> TestCaseError {
    TestCaseError::fail(format!("{what}\n real: {real:?}\nmodel: {model:?}"))
}

/// The same sequences each time.
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
fn in_every_state_that_can_be_reached_all_promises_hold() {
    let began = Instant::now();
    let checker = Jobs::default().checker().threads(2).spawn_bfs().join();
    println!(
        "{} states, {} steps, {} deep, {:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        began.elapsed()
    );
    checker.assert_properties();
    assert!(checker.is_done(), "not all states were visited");
    assert!(checker.unique_state_count() > 100_000, "there are more");
}

#[test]
fn the_model_finds_what_is_wrong() {
    for (flaw, broken) in [
        (Flaw::NoFence, "a result is that of the last attempt"),
        (Flaw::EndlessTries, "four tries at most"),
        (
            Flaw::RefundsAllCancelled,
            "a charge is held unless it is given back, once",
        ),
        (Flaw::NoSweep, "every job can end"),
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
fn what_goes_wrong_is_told_by_the_shortest_sequence() {
    let flawed = Jobs {
        flaw: Some(Flaw::NoFence),
    };
    let shortest = Shortest::default();
    let outcome = TestRunner::new(config(2_000)).run(
        &Jobs::sequential_strategy(10..40),
        |(mut state, actions, counter)| {
            for (at, action) in actions.iter().enumerate() {
                counted(counter.as_ref());
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
        "it was not found: {outcome:?}"
    );
    let actions = shortest.get().unwrap();
    println!("{actions:?}");
    // Submitted, claimed, taken back, claimed again, and then the late write; what is beside it does no harm.
    assert!(
        actions.len() <= 10 && matches!(actions.last(), Some(Action::End { .. })),
        "{actions:?}"
    );
}
