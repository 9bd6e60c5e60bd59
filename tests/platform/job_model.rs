//! A model for a job's life: two workers, two jobs, four attempts. `job_proofs` visits all its
//! states; `job_machine` applies the same actions to the real system. The status's transitions
//! are not repeated here: they are `JobStatus::after`'s.

use assay_core::model::job::{ATTEMPTS_MAX, FailureCode, JobStatus, Trigger};

pub const JOBS: usize = 2;
pub const WORKERS: usize = 2;
pub const MAX_ATTEMPTS: u8 = ATTEMPTS_MAX as u8;

/// The worker that owns a running job in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    Worker(usize),
    /// The job is orphaned, and the next sweep reclaims it.
    Nobody,
}

/// A job's row and its ledger rows, and the attempts that some process still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Job {
    pub status: JobStatus,
    pub attempts: u8,
    pub holder: Option<Holder>,
    /// Set after the attempt's 15-minute deadline has passed.
    pub overdue: bool,
    /// `true` if the job need not wait for its next attempt.
    pub due: bool,
    pub failure: Option<FailureCode>,
    /// The attempt that wrote the result.
    pub result: Option<u8>,
    /// Times that the job entered a terminal state.
    pub times_finished: u8,
    pub refunds: u8,
    /// A bit set with the attempts that some process still runs: bit `n` is attempt `n`.
    pub live_attempts: u8,
}

impl Job {
    fn is_live(&self, attempt: u8) -> bool {
        self.live_attempts & (1 << attempt) != 0
    }

    /// Returns `true` if no process runs the current attempt.
    pub fn is_orphaned(&self) -> bool {
        self.status == JobStatus::Running && !self.is_live(self.attempts)
    }

    /// Returns a rank that each effective step increases until the job is final. It excludes
    /// cycles.
    fn rank(&self) -> (u8, u8) {
        let orphaned = u8::from(self.overdue) + u8::from(self.holder == Some(Holder::Nobody));
        match self.status {
            JobStatus::Queued => (2 * self.attempts + 1, self.due.into()),
            JobStatus::Running => (2 * self.attempts, orphaned),
            _ => (u8::MAX, 0),
        }
    }

    /// Returns `true` if the charge must be refunded: the failure was ours, or the job was
    /// cancelled before its first attempt.
    pub fn is_refunded(&self) -> bool {
        match self.status {
            JobStatus::Failed => self.failure.is_some_and(FailureCode::is_refunded),
            JobStatus::Cancelled => self.attempts == 0,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub jobs: [Option<Job>; JOBS],
    /// `true` for each worker whose lease is valid.
    pub lease_valid: [bool; WORKERS],
    /// Set after an illegal step on the path to this state.
    pub took_illegal_step: bool,
}

/// An attempt's final write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    Succeed,
    Fail(FailureCode),
    Requeue,
}

pub const WRITES: [Write; 3] = [
    Write::Succeed,
    Write::Fail(FailureCode::InvalidPredictions),
    Write::Requeue,
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
    /// An attempt that was started at some time does its final write, in time or late, once or
    /// again.
    Finish {
        write: Write,
        job: usize,
        attempt: u8,
    },
    /// A process dies, or the response to its claim or to its final write is lost.
    LoseAttempt {
        job: usize,
        attempt: u8,
    },
    /// A worker orphans the jobs that it owns in the database but does not run.
    OrphanUnknownClaims {
        worker: usize,
    },
    /// A worker does not renew its lease until it expires.
    ExpireLease {
        worker: usize,
    },
    RenewLease {
        worker: usize,
    },
    /// The 15-minute deadline passes.
    PassDeadline {
        job: usize,
    },
    /// The delay before the next attempt passes.
    EndBackoff {
        job: usize,
    },
    Sweep {
        include_expired_leases: bool,
    },
}

impl Action {
    /// Returns `true` if this is the final write by an attempt whose job a later attempt runs.
    pub fn is_late(&self, state: &State) -> bool {
        let Self::Finish { job, attempt, .. } = self else {
            return false;
        };
        state.jobs[*job]
            .is_some_and(|job| job.status == JobStatus::Running && *attempt < job.attempts)
    }
}

/// An implementation's possible flaw. The checker must find each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A final write does not check the attempt number.
    NoFence,
    /// The attempt count is not limited.
    UnlimitedAttempts,
    /// Every cancelled job is refunded.
    RefundsAllCancelled,
    /// A dead worker's jobs are never reclaimed.
    NoSweep,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Jobs {
    pub flaw: Option<Flaw>,
}

impl Jobs {
    pub const START: State = State {
        jobs: [None; JOBS],
        lease_valid: [true; WORKERS],
        took_illegal_step: false,
    };

    /// Lists all actions that may be tried in a state, even if they have no effect or are rejected.
    pub fn all_actions(state: &State) -> Vec<Action> {
        let mut all = vec![
            Action::Sweep {
                include_expired_leases: true,
            },
            Action::Sweep {
                include_expired_leases: false,
            },
        ];
        for worker in 0..WORKERS {
            all.extend([
                Action::OrphanUnknownClaims { worker },
                Action::ExpireLease { worker },
                Action::RenewLease { worker },
            ]);
        }
        for (job, row) in state.jobs.iter().enumerate() {
            let Some(row) = row else {
                all.push(Action::Submit { job });
                continue;
            };
            all.extend([
                Action::Cancel { job },
                Action::PassDeadline { job },
                Action::EndBackoff { job },
            ]);
            all.extend((0..WORKERS).map(|worker| Action::Claim { worker, job }));
            for attempt in (1..=row.attempts).filter(|attempt| row.is_live(*attempt)) {
                all.push(Action::LoseAttempt { job, attempt });
                all.extend(WRITES.map(|write| Action::Finish {
                    write,
                    job,
                    attempt,
                }));
            }
        }
        all
    }

    /// Returns the state after an action. The state is unchanged if the action is rejected or has
    /// no effect.
    pub fn step(&self, mut state: State, action: Action) -> State {
        let lease_valid = state.lease_valid;
        match action {
            Action::Submit { job } => state.jobs[job] = state.jobs[job].or(Some(submitted())),
            Action::ExpireLease { worker } => state.lease_valid[worker] = false,
            Action::RenewLease { worker } => state.lease_valid[worker] = true,
            Action::OrphanUnknownClaims { worker } => {
                let held = |row: &&mut Job| {
                    row.holder == Some(Holder::Worker(worker)) && row.is_orphaned()
                };
                state
                    .jobs
                    .iter_mut()
                    .flatten()
                    .filter(held)
                    .for_each(|row| row.holder = Some(Holder::Nobody));
            }
            Action::Sweep {
                include_expired_leases,
            } => {
                let lost = |holder: Option<Holder>| match holder {
                    Some(Holder::Worker(worker)) => include_expired_leases && !lease_valid[worker],
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
                    .for_each(|row| self.reclaim(row));
            }
            Action::Cancel { job }
            | Action::Claim { job, .. }
            | Action::Finish { job, .. }
            | Action::LoseAttempt { job, .. }
            | Action::PassDeadline { job }
            | Action::EndBackoff { job } => {
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
                let never_started =
                    row.attempts == 0 || self.flaw == Some(Flaw::RefundsAllCancelled);
                row.refunds += u8::from(transition(row, Trigger::Cancel) && never_started);
            }
            Action::Claim { worker, .. } => self.claim(row, worker),
            Action::Finish { write, attempt, .. }
                if attempt == row.attempts || self.flaw == Some(Flaw::NoFence) =>
            {
                finish(row, write, attempt);
            }
            Action::LoseAttempt { attempt, .. } => row.live_attempts &= !(1 << attempt),
            Action::PassDeadline { .. } => row.overdue = row.status == JobStatus::Running,
            Action::EndBackoff { .. } => row.due = true,
            _ => {}
        }
    }

    fn has_attempts_left(&self, row: &Job) -> bool {
        row.attempts < MAX_ATTEMPTS || self.flaw == Some(Flaw::UnlimitedAttempts)
    }

    fn claim(&self, row: &mut Job, worker: usize) {
        if row.due && self.has_attempts_left(row) && transition(row, Trigger::Claim) {
            row.attempts += 1;
            row.holder = Some(Holder::Worker(worker));
            row.live_attempts |= 1 << row.attempts;
        }
    }

    fn reclaim(&self, row: &mut Job) {
        if self.has_attempts_left(row) {
            transition(row, Trigger::Requeue);
        } else {
            let code = if row.overdue {
                FailureCode::Timeout
            } else {
                FailureCode::Internal
            };
            finish(row, Write::Fail(code), row.attempts);
        }
    }

    /// Returns actions with which one working worker finishes every job from this state.
    pub fn completion(state: &State) -> Vec<Action> {
        let steps = |(job, row): (usize, &Option<Job>)| {
            let Some(row) = row.filter(|row| !row.status.is_final()) else {
                return Vec::new();
            };
            let mut steps = Vec::new();
            if row.status == JobStatus::Running {
                steps.extend([
                    Action::PassDeadline { job },
                    Action::Sweep {
                        include_expired_leases: false,
                    },
                ]);
            }
            let attempt = row.attempts + 1;
            steps.extend([Action::EndBackoff { job }, Action::Claim { worker: 0, job }]);
            steps.extend((attempt <= MAX_ATTEMPTS).then_some(Action::Finish {
                write: Write::Succeed,
                job,
                attempt,
            }));
            steps
        };
        state.jobs.iter().enumerate().flat_map(steps).collect()
    }

    /// Returns `true` if a step changes each job only as the transition table allows.
    pub fn is_legal_step(before: &State, after: &State) -> bool {
        before
            .jobs
            .iter()
            .zip(&after.jobs)
            .all(|(before, after)| match (before, after) {
                (Some(before), Some(after)) => {
                    let is_in_table = before.status == after.status
                        || TRIGGERS
                            .iter()
                            .any(|by| before.status.after(*by) == Ok(after.status));
                    let same = Job {
                        live_attempts: 0,
                        ..*before
                    } == Job {
                        live_attempts: 0,
                        ..*after
                    };
                    is_in_table
                        && (same || !before.status.is_final() && before.rank() < after.rank())
                }
                (before, _) => before.is_none(),
            })
    }

    /// Returns `true` if [`Jobs::completion`] leads every job to a terminal state.
    pub fn all_can_finish(&self, state: &State) -> bool {
        let end = Self::completion(state)
            .into_iter()
            .fold(*state, |state, action| self.step(state, action));
        end.jobs.iter().flatten().all(|row| row.status.is_final())
    }
}

const TRIGGERS: [Trigger; 5] = [
    Trigger::Claim,
    Trigger::Succeed,
    Trigger::Fail,
    Trigger::Requeue,
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
        times_finished: 0,
        refunds: 0,
        live_attempts: 0,
    }
}

/// Changes a job's status if the transition table allows it. Returns `true` if it did.
fn transition(row: &mut Job, trigger: Trigger) -> bool {
    let Ok(status) = row.status.after(trigger) else {
        return false;
    };
    (row.status, row.holder, row.overdue, row.due) = (status, None, false, true);
    row.times_finished += u8::from(status.is_final());
    true
}

fn finish(row: &mut Job, write: Write, attempt: u8) {
    match write {
        Write::Succeed => {
            if transition(row, Trigger::Succeed) {
                row.result = Some(attempt);
            }
        }
        Write::Requeue if attempt < MAX_ATTEMPTS => {
            if transition(row, Trigger::Requeue) {
                row.due = false;
            }
        }
        Write::Requeue => finish(row, Write::Fail(FailureCode::Internal), attempt),
        Write::Fail(code) => {
            if transition(row, Trigger::Fail) {
                row.failure = Some(code);
                row.refunds += u8::from(code.is_refunded());
            }
        }
    }
}
