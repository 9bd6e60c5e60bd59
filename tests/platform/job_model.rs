//! A model of what can happen to jobs: two workers, two jobs, four attempts. `job_proofs` visits all of it; `job_machine`
//! does the same to the real system. Which state follows from which is not written here a second time: it is `JobStatus::after`.

use assay_core::model::job::{ATTEMPTS_MAX, FailureCode, JobStatus, Trigger};

pub const JOBS: usize = 2;
pub const WORKERS: usize = 2;
pub const TRIES: u8 = ATTEMPTS_MAX as u8;

/// Who holds a running job, by the database's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    Worker(usize),
    /// It was given up, and the next sweep takes it back.
    Nobody,
}

/// A job's row and its rows of the ledger; and, as a set of bits, the attempts that some process has in its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Job {
    pub status: JobStatus,
    pub attempts: u8,
    pub holder: Option<Holder>,
    /// Its fifteen minutes are over.
    pub overdue: bool,
    /// It need not wait for its next try.
    pub due: bool,
    pub failure: Option<FailureCode>,
    /// The attempt whose result it has.
    pub result: Option<u8>,
    /// How often it ended.
    pub ends: u8,
    pub refunds: u8,
    pub hands: u8,
}

impl Job {
    fn holds(&self, attempt: u8) -> bool {
        self.hands & (1 << attempt) != 0
    }

    /// Whether its present attempt is in nobody's hands.
    pub fn forgotten(&self) -> bool {
        self.status == JobStatus::Running && !self.holds(self.attempts)
    }

    /// What only grows while a job is not final, and so says that nothing goes round in circles.
    fn rank(&self) -> (u8, u8) {
        let given_up = u8::from(self.overdue) + u8::from(self.holder == Some(Holder::Nobody));
        match self.status {
            JobStatus::Queued => (2 * self.attempts + 1, self.due.into()),
            JobStatus::Running => (2 * self.attempts, given_up),
            _ => (u8::MAX, 0),
        }
    }

    /// What is promised of a charge: it is kept unless the fault was ours, or nothing was ever begun.
    pub fn is_given_back(&self) -> bool {
        match self.status {
            JobStatus::Failed => self.failure.is_some_and(FailureCode::is_ours),
            JobStatus::Cancelled => self.attempts == 0,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub jobs: [Option<Job>; JOBS],
    /// Workers that were heard of in time.
    pub heard: [bool; WORKERS],
    /// Whether a step on the way here was one that there must not be.
    pub astray: bool,
}

/// How an attempt wants to end its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    Succeed,
    Fail(FailureCode),
    Release,
}

pub const WRITES: [Write; 3] = [
    Write::Succeed,
    Write::Fail(FailureCode::InvalidPredictions),
    Write::Release,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Submit {
        job: usize,
    },
    Cancel {
        job: usize,
    },
    Claim {
        worker: usize,
        job: usize,
    },
    /// An attempt that was begun at some time writes its end, in time or late, once or again.
    End {
        write: Write,
        job: usize,
        attempt: u8,
    },
    /// A process dies, or the answer to its claim or its end is lost.
    Forget {
        job: usize,
        attempt: u8,
    },
    /// A worker gives up what it holds by the database's account and not by its own.
    Disown {
        worker: usize,
    },
    /// A worker is not heard of until its lease has run out.
    Silence {
        worker: usize,
    },
    Beat {
        worker: usize,
    },
    /// Fifteen minutes pass.
    Deadline {
        job: usize,
    },
    /// The pause before the next try passes.
    Pause {
        job: usize,
    },
    Sweep {
        silence_counts: bool,
    },
}

impl Action {
    /// Whether it is the end of an attempt whose job is in the hands of a later one.
    pub fn is_late(&self, state: &State) -> bool {
        let Self::End { job, attempt, .. } = self else {
            return false;
        };
        state.jobs[*job]
            .is_some_and(|job| job.status == JobStatus::Running && *attempt < job.attempts)
    }
}

/// What could be wrong with an implementation. Each must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// An end is not asked which attempt it is of.
    NoFence,
    /// The sweep does not count tries.
    EndlessTries,
    /// Whoever cancels gets the charge back.
    RefundsAllCancelled,
    /// What a dead worker held stays there.
    NoSweep,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Jobs {
    pub flaw: Option<Flaw>,
}

impl Jobs {
    pub const START: State = State {
        jobs: [None; JOBS],
        heard: [true; WORKERS],
        astray: false,
    };

    /// All that may be tried in a state, whether it has an effect or is refused.
    pub fn all_actions(state: &State) -> Vec<Action> {
        let mut all = vec![
            Action::Sweep {
                silence_counts: true,
            },
            Action::Sweep {
                silence_counts: false,
            },
        ];
        for worker in 0..WORKERS {
            all.extend([
                Action::Disown { worker },
                Action::Silence { worker },
                Action::Beat { worker },
            ]);
        }
        for (job, row) in state.jobs.iter().enumerate() {
            let Some(row) = row else {
                all.push(Action::Submit { job });
                continue;
            };
            all.extend([
                Action::Cancel { job },
                Action::Deadline { job },
                Action::Pause { job },
            ]);
            all.extend((0..WORKERS).map(|worker| Action::Claim { worker, job }));
            for attempt in (1..=row.attempts).filter(|attempt| row.holds(*attempt)) {
                all.push(Action::Forget { job, attempt });
                all.extend(WRITES.map(|write| Action::End {
                    write,
                    job,
                    attempt,
                }));
            }
        }
        all
    }

    /// What an action makes of a state. The same state: it was refused, or there was nothing to do.
    pub fn step(&self, mut state: State, action: Action) -> State {
        let heard = state.heard;
        match action {
            Action::Submit { job } => state.jobs[job] = state.jobs[job].or(Some(submitted())),
            Action::Silence { worker } => state.heard[worker] = false,
            Action::Beat { worker } => state.heard[worker] = true,
            Action::Disown { worker } => {
                let held =
                    |row: &&mut Job| row.holder == Some(Holder::Worker(worker)) && row.forgotten();
                state
                    .jobs
                    .iter_mut()
                    .flatten()
                    .filter(held)
                    .for_each(|row| row.holder = Some(Holder::Nobody));
            }
            Action::Sweep { silence_counts } => {
                let lost = |holder: Option<Holder>| match holder {
                    Some(Holder::Worker(worker)) => silence_counts && !heard[worker],
                    holder => holder == Some(Holder::Nobody),
                };
                let stuck = |row: &&mut Job| {
                    row.status == JobStatus::Running && (row.overdue || lost(row.holder))
                };
                let sweeps = self.flaw != Some(Flaw::NoSweep);
                state
                    .jobs
                    .iter_mut()
                    .flatten()
                    .filter(stuck)
                    .filter(|_| sweeps)
                    .for_each(|row| self.take_back(row));
            }
            Action::Cancel { job }
            | Action::Claim { job, .. }
            | Action::End { job, .. }
            | Action::Forget { job, .. }
            | Action::Deadline { job }
            | Action::Pause { job } => {
                if let Some(row) = &mut state.jobs[job] {
                    self.step_of_one(row, action);
                }
            }
        }
        state
    }

    fn step_of_one(&self, row: &mut Job, action: Action) {
        match action {
            Action::Cancel { .. } => {
                let never_begun = row.attempts == 0 || self.flaw == Some(Flaw::RefundsAllCancelled);
                row.refunds += u8::from(change(row, Trigger::Cancel) && never_begun);
            }
            Action::Claim { worker, .. } => self.claim(row, worker),
            Action::End { write, attempt, .. }
                if attempt == row.attempts || self.flaw == Some(Flaw::NoFence) =>
            {
                end(row, write, attempt);
            }
            Action::Forget { attempt, .. } => row.hands &= !(1 << attempt),
            Action::Deadline { .. } => row.overdue = row.status == JobStatus::Running,
            Action::Pause { .. } => row.due = true,
            _ => {}
        }
    }

    fn has_tries(&self, row: &Job) -> bool {
        row.attempts < TRIES || self.flaw == Some(Flaw::EndlessTries)
    }

    fn claim(&self, row: &mut Job, worker: usize) {
        if row.due && self.has_tries(row) && change(row, Trigger::Claim) {
            row.attempts += 1;
            row.holder = Some(Holder::Worker(worker));
            row.hands |= 1 << row.attempts;
        }
    }

    fn take_back(&self, row: &mut Job) {
        if self.has_tries(row) {
            change(row, Trigger::Release);
        } else {
            let code = if row.overdue {
                FailureCode::Timeout
            } else {
                FailureCode::Internal
            };
            end(row, Write::Fail(code), row.attempts);
        }
    }

    /// What brings every job to its end from here, with one worker that does its work.
    pub fn way_out(state: &State) -> Vec<Action> {
        let steps = |(job, row): (usize, &Option<Job>)| {
            let Some(row) = row.filter(|row| !row.status.is_final()) else {
                return Vec::new();
            };
            let mut steps = Vec::new();
            if row.status == JobStatus::Running {
                steps.extend([
                    Action::Deadline { job },
                    Action::Sweep {
                        silence_counts: false,
                    },
                ]);
            }
            let attempt = row.attempts + 1;
            steps.extend([Action::Pause { job }, Action::Claim { worker: 0, job }]);
            steps.extend((attempt <= TRIES).then_some(Action::End {
                write: Write::Succeed,
                job,
                attempt,
            }));
            steps
        };
        state.jobs.iter().enumerate().flat_map(steps).collect()
    }

    /// Whether a step makes of each job only what may become of it.
    pub fn is_right(before: &State, after: &State) -> bool {
        before
            .jobs
            .iter()
            .zip(&after.jobs)
            .all(|(before, after)| match (before, after) {
                (Some(before), Some(after)) => {
                    let by_the_table = before.status == after.status
                        || TRIGGERS
                            .iter()
                            .any(|by| before.status.after(*by) == Ok(after.status));
                    let same = Job {
                        hands: 0,
                        ..*before
                    } == Job { hands: 0, ..*after };
                    by_the_table
                        && (same || !before.status.is_final() && before.rank() < after.rank())
                }
                (before, _) => before.is_none(),
            })
    }

    pub fn all_end(&self, state: &State) -> bool {
        let end = Self::way_out(state)
            .into_iter()
            .fold(*state, |state, action| self.step(state, action));
        end.jobs.iter().flatten().all(|row| row.status.is_final())
    }
}

const TRIGGERS: [Trigger; 5] = [
    Trigger::Claim,
    Trigger::Succeed,
    Trigger::Fail,
    Trigger::Release,
    Trigger::Cancel,
];

fn submitted() -> Job {
    let status = JobStatus::Queued;
    Job {
        status,
        attempts: 0,
        holder: None,
        overdue: false,
        due: true,
        failure: None,
        result: None,
        ends: 0,
        refunds: 0,
        hands: 0,
    }
}

/// Moves a job on, if the table of transitions has it.
fn change(row: &mut Job, trigger: Trigger) -> bool {
    let Ok(status) = row.status.after(trigger) else {
        return false;
    };
    (row.status, row.holder, row.overdue, row.due) = (status, None, false, true);
    row.ends += u8::from(status.is_final());
    true
}

fn end(row: &mut Job, write: Write, attempt: u8) {
    match write {
        Write::Succeed => {
            if change(row, Trigger::Succeed) {
                row.result = Some(attempt);
            }
        }
        Write::Release if attempt < TRIES => {
            if change(row, Trigger::Release) {
                row.due = false;
            }
        }
        Write::Release => end(row, Write::Fail(FailureCode::Internal), attempt),
        Write::Fail(code) => {
            if change(row, Trigger::Fail) {
                row.failure = Some(code);
                row.refunds += u8::from(code.is_ours());
            }
        }
    }
}
