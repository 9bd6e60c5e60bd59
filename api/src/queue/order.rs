//! The queue's order, and the number of jobs that workers are notified of.
//!
//! The next job is the one with the smallest sort key: the cost of the organization's jobs that run,
//! or started in the last 60 s, and of those that wait until this one, divided by the weight of the
//! organization's plan. So organizations that wait share the slots in proportion to their weights,
//! whatever their job size. One of [`CHOICES_PER_OLDEST`] choices takes the job that has
//! waited longest instead, so that a large job starts although small ones arrive all the time. Such
//! choices get at most the same share of the run time. Otherwise a flood of large jobs would fill the
//! slots.
//!
//! Jobs in Redis cannot be reordered. Workers are therefore notified of the jobs for which slots are
//! free, and of as many further ones as they finish in [`SECONDS_AHEAD`].

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use assay_core::model::queue::{CHOICES_PER_OLDEST, Speed};
use assay_core::runtime::job_queue::JOBS_PER_TASK_MAX;
use assay_core::store::queue::{BusyJobs, WaitingJob, WaitingOrg};
use assay_core::{OrgId, Timestamp};

/// The run time of the jobs that workers are notified of before their slots are free, in seconds
/// for each slot. It bridges the time until the next round.
const SECONDS_AHEAD: f64 = 0.2;

/// The time until the next round while there is no worker.
const PAUSE_WITHOUT_SLOTS: Duration = Duration::from_millis(500);

/// The most jobs that one round chooses.
pub const CHOSEN_MAX: usize = 128;

/// The number of small jobs that occupy a slot together: those of one task.
const SMALL_JOBS_PER_SLOT: f64 = JOBS_PER_TASK_MAX as f64;

/// A sort key: items for each unit of weight, in millionths so that it is exact.
type SortKey = u128;

/// The waiting jobs, in the order of the queue.
pub struct Order {
    orgs: Vec<QueueClass>,
    /// Each organization's first job, by its sort key. Of equal keys, the older job is first.
    by_key: BTreeSet<(SortKey, Timestamp, usize)>,
    /// Each organization's first job, by its age.
    by_age: BTreeSet<(Timestamp, usize)>,
    /// The largest cost of the jobs that are ordered.
    cost_max: i64,
    speed: Speed,
    counts: ChoiceCounts,
}

/// The counts of the choices among all jobs, and of those for which no long job was allowed. Together,
/// the latter would use up the choices by age, and a long job might never get one. Each round continues
/// the counts of the one before.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChoiceCounts([ChoiceCount; 2]);

/// A number of choices, some of which are by age.
#[derive(Debug, Clone, Copy, Default)]
struct ChoiceCount {
    /// The number of jobs that were chosen.
    choices: u64,
    /// The run time of other jobs that must be chosen before the next choice by age. Sums of
    /// durations are exact, unlike those of seconds as floating-point numbers.
    until_oldest: Duration,
}

impl ChoiceCount {
    fn is_oldest_next(self) -> bool {
        (self.choices + 1).is_multiple_of(u64::from(CHOICES_PER_OLDEST))
            && self.until_oldest.is_zero()
    }

    /// Counts a job. `by_age` says that it would not have been the next by its sort key.
    fn add(&mut self, run_time: Duration, by_age: bool) {
        self.choices += 1;
        self.until_oldest = if by_age {
            run_time.saturating_mul(CHOICES_PER_OLDEST - 1)
        } else {
            self.until_oldest.saturating_sub(run_time)
        };
    }
}

/// An organization's jobs, the oldest first.
struct QueueClass {
    org_id: OrgId,
    jobs: VecDeque<WaitingJob>,
    weight: u32,
    /// The job cost before the first one: those that are active, and those that were taken.
    cost_before: i64,
}

impl QueueClass {
    fn sort_key(&self, job: &WaitingJob) -> SortKey {
        let cost = self.cost_before.saturating_add(job.cost).max(0);
        u128::from(cost.unsigned_abs()) * 1_000_000 / u128::from(self.weight.max(1))
    }
}

impl Order {
    /// Orders jobs. The counts are those of earlier rounds.
    pub fn new(orgs: Vec<WaitingOrg>, speed: Speed, counts: ChoiceCounts) -> Self {
        let orgs: Vec<_> = orgs
            .into_iter()
            .map(|org| QueueClass {
                org_id: org.org_id,
                jobs: org.jobs.into(),
                weight: org.weight,
                cost_before: org.active_cost,
            })
            .collect();
        let mut order = Self {
            orgs,
            by_key: BTreeSet::new(),
            by_age: BTreeSet::new(),
            cost_max: i64::MAX,
            speed,
            counts,
        };
        for org in 0..order.orgs.len() {
            order.list(org);
        }
        order
    }

    /// Lists an organization's first job.
    fn list(&mut self, org: usize) {
        let class = &self.orgs[org];
        if let Some(first) = class.jobs.front() {
            self.by_key
                .insert((class.sort_key(first), first.created_at, org));
            self.by_age.insert((first.created_at, org));
        }
    }

    fn unlist(&mut self, org: usize) {
        let class = &self.orgs[org];
        if let Some(first) = class.jobs.front() {
            self.by_key
                .remove(&(class.sort_key(first), first.created_at, org));
            self.by_age.remove(&(first.created_at, org));
        }
    }

    fn first_by_key(&self) -> Option<usize> {
        self.by_key.first().map(|(_, _, org)| *org)
    }

    /// Returns the index of the counts.
    fn kind(&self) -> usize {
        usize::from(self.cost_max < i64::MAX)
    }

    /// Returns the next job's organization.
    fn next_org(&self) -> Option<usize> {
        if self.counts.0[self.kind()].is_oldest_next() {
            self.by_age.first().map(|(_, org)| *org)
        } else {
            self.first_by_key()
        }
    }

    /// Returns the next job.
    pub fn peek(&self) -> Option<&WaitingJob> {
        self.orgs[self.next_org()?].jobs.front()
    }

    /// Takes the next job. The second result is its sort key, in items for each unit of weight.
    pub fn take(&mut self) -> Option<(WaitingJob, f64)> {
        let org = self.next_org()?;
        let by_age = self.first_by_key() != Some(org);
        self.unlist(org);
        let class = &mut self.orgs[org];
        let job = class.jobs.pop_front()?;
        let sort_key = class.sort_key(&job);
        class.cost_before = class.cost_before.saturating_add(job.cost);
        self.list(org);
        let run_time = Duration::try_from_secs_f64(self.speed.seconds(1, job.cost));
        let kind = self.kind();
        self.counts.0[kind].add(run_time.unwrap_or_default(), by_age);
        Some((job, sort_key as f64 / 1e6))
    }

    /// Removes the jobs that cost more than this.
    fn limit_cost(&mut self, cost_max: i64) {
        if cost_max >= self.cost_max {
            return;
        }
        self.cost_max = cost_max;
        self.by_key.clear();
        self.by_age.clear();
        for org in 0..self.orgs.len() {
            self.orgs[org].jobs.retain(|job| job.cost <= cost_max);
            self.list(org);
        }
    }

    /// Returns the counts of all choices.
    pub const fn counts(&self) -> ChoiceCounts {
        self.counts
    }
}

/// The room for further jobs: of how many workers can be notified now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    speed: Speed,
    /// The number of tasks that Redis can store.
    tasks: f64,
    slots: f64,
    /// Slots without a job. Small jobs occupy a part of one.
    free_slots: f64,
    /// The run time of the jobs that may wait for a slot in addition, in seconds.
    seconds_ahead: f64,
    /// The number of long jobs that may start.
    long_jobs: u32,
}

impl Room {
    /// Returns the room of `slots` slots in all, with the jobs that workers run or are notified of.
    pub fn new(speed: Speed, tasks: usize, slots: u32, busy: &[BusyJobs]) -> Self {
        let (mut occupied, mut seconds_notified, mut long_jobs) = (0.0, 0.0, 0);
        for org in busy {
            let slots = org.running_large as f64
                + (org.running_small + org.notified_small) as f64 / SMALL_JOBS_PER_SLOT
                + org.notified_large as f64;
            occupied += slots;
            let notified = usize::try_from(org.notified_small + org.notified_large).unwrap_or(0);
            seconds_notified += speed.seconds(notified, org.notified_cost);
            long_jobs += org.long;
        }
        let free_slots = f64::from(slots) - occupied;
        // Notified jobs are in slots as far as there are any. The others wait for one.
        let seconds_ahead = match free_slots < 0.0 {
            true => f64::from(slots) * SECONDS_AHEAD - seconds_notified,
            false => f64::from(slots) * SECONDS_AHEAD,
        };
        let long_max = (slots / 2).max(1);
        Self {
            speed,
            tasks: tasks as f64,
            slots: f64::from(slots),
            free_slots: free_slots.max(0.0),
            seconds_ahead: seconds_ahead.max(0.0),
            long_jobs: long_max.saturating_sub(u32::try_from(long_jobs).unwrap_or(u32::MAX)),
        }
    }

    /// Returns the most jobs for which there may be room.
    pub fn jobs_max(&self) -> usize {
        let small = self.tasks * SMALL_JOBS_PER_SLOT;
        let fitting =
            self.free_slots * SMALL_JOBS_PER_SLOT + self.seconds_ahead / self.speed.seconds(1, 1);
        (small.min(fitting).ceil() as usize).min(CHOSEN_MAX)
    }

    /// Returns the largest cost of a job for which there may be room.
    pub fn cost_max(&self) -> i64 {
        match self.long_jobs {
            0 => self.speed.cost_of_short_jobs_max(),
            _ => i64::MAX,
        }
    }

    /// Returns the time until a round is needed: a quarter of the time for which the jobs that
    /// workers were notified of keep every slot busy.
    pub fn pause(&self) -> Duration {
        if self.slots == 0.0 {
            PAUSE_WITHOUT_SLOTS
        } else if self.free_slots >= 1.0 {
            Duration::ZERO
        } else {
            let seconds_busy = SECONDS_AHEAD - self.seconds_ahead / self.slots;
            Duration::from_secs_f64(seconds_busy.max(0.0) / 4.0)
        }
    }

    /// Takes the room for a job. Returns `false` if there is too little.
    fn take(&mut self, job: &WaitingJob) -> bool {
        let share = if job.is_small {
            1.0 / SMALL_JOBS_PER_SLOT
        } else {
            1.0
        };
        if self.tasks < share {
            return false;
        }
        let seconds = self.speed.seconds(1, job.cost);
        if self.free_slots >= share {
            self.free_slots -= share;
        } else if self.seconds_ahead >= seconds {
            self.seconds_ahead -= seconds;
        } else {
            return false;
        }
        self.tasks -= share;
        if job.cost > self.speed.cost_of_short_jobs_max() {
            self.long_jobs = self.long_jobs.saturating_sub(1);
        }
        true
    }
}

/// Takes the jobs for which there is room, in the order of the queue, and their room. Returns each
/// with its organization.
pub fn choose(order: &mut Order, room: &mut Room) -> Vec<(OrgId, WaitingJob)> {
    let mut chosen = Vec::new();
    while chosen.len() < CHOSEN_MAX {
        order.limit_cost(room.cost_max());
        let Some(next) = order.peek() else { break };
        // A smaller job further behind must not overtake: the slot that frees next is for this one.
        if !room.take(next) {
            break;
        }
        let org_id = order.next_org().map(|org| order.orgs[org].org_id.clone());
        chosen.extend(org_id.zip(order.take().map(|(job, _)| job)));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use assay_core::JobId;

    use super::*;

    const SPEED: Speed = Speed {
        items_per_second: 1_000.0,
        overhead_seconds: 0.001,
    };

    fn job(cost: i64, created_us: i64) -> WaitingJob {
        WaitingJob {
            job_id: JobId::random().unwrap(),
            cost,
            created_at: Timestamp::from_unix_micros(created_us).unwrap(),
            is_small: false,
        }
    }

    fn org(weight: u32, active_cost: i64, jobs: Vec<WaitingJob>) -> WaitingOrg {
        WaitingOrg {
            org_id: OrgId::random().unwrap(),
            weight,
            active_cost,
            jobs,
        }
    }

    /// Returns the costs of the jobs in the order in which they are taken.
    fn costs(order: &mut Order) -> Vec<i64> {
        std::iter::from_fn(|| order.take().map(|(job, _)| job.cost)).collect()
    }

    fn busy(running_large: i64, notified_large: i64, long: i64) -> BusyJobs {
        BusyJobs {
            org_id: OrgId::random().unwrap(),
            cost: 0,
            remaining_cost: 0,
            notified_cost: notified_large,
            running_small: 0,
            running_large,
            notified_small: 0,
            notified_large,
            long,
        }
    }

    #[test]
    fn organizations_share_by_cost_not_by_number() {
        let large = (0..3).map(|n| job(100, n)).collect();
        let small = (0..6).map(|n| job(30, 1_000 + n)).collect();
        let mut order = Order::new(
            vec![org(1, 0, large), org(1, 0, small)],
            SPEED,
            ChoiceCounts::default(),
        );
        // 30, 60 and 90 items come before 100, and so on. The eighth is the oldest.
        assert_eq!(costs(&mut order), [30, 30, 30, 100, 30, 30, 30, 100, 100]);
    }

    #[test]
    fn older_job_comes_first_if_sort_keys_are_equal() {
        let mut order = Order::new(
            vec![org(1, 10, vec![job(5, 2)]), org(2, 20, vec![job(10, 1)])],
            SPEED,
            ChoiceCounts::default(),
        );
        assert_eq!(costs(&mut order), [10, 5]);
    }

    #[test]
    fn active_jobs_count_against_their_organization() {
        let mut order = Order::new(
            vec![org(1, 50, vec![job(1, 1)]), org(1, 0, vec![job(40, 2)])],
            SPEED,
            ChoiceCounts::default(),
        );
        assert_eq!(costs(&mut order), [40, 1]);
    }

    #[test]
    fn finished_cost_follows_the_weights() {
        let weights = [1, 2, 4];
        let orgs =
            weights.map(|weight| org(weight, 0, (0..600).map(|n| job(1 + n % 7, n)).collect()));
        let mut order = Order::new(orgs.into(), SPEED, ChoiceCounts::default());
        let mut taken = [0; 3];
        while taken.iter().sum::<i64>() < 2_000 {
            let org = order.next_org().unwrap();
            taken[org] += order.take().unwrap().0.cost;
        }
        let shares = taken.map(|cost| cost as f64 / taken.iter().sum::<i64>() as f64 * 7.0);
        for (share, weight) in shares.iter().zip(weights) {
            // One of eight choices is by age.
            assert!((share / f64::from(weight) - 1.0).abs() < 0.1, "{shares:?}");
        }
    }

    #[test]
    fn every_eighth_choice_takes_the_oldest() {
        let old = vec![job(1_000_000, 0)];
        let small = (1..100).map(|n| job(1, n)).collect();
        let mut counts = ChoiceCounts::default();
        counts.0[0].choices = 3;
        let mut order = Order::new(vec![org(1, 0, old), org(4, 0, small)], SPEED, counts);
        // The eighth choice, of which three were made by earlier rounds.
        assert_eq!(costs(&mut order)[..6], [1, 1, 1, 1, 1_000_000, 1]);
    }

    #[test]
    fn oldest_jobs_get_an_eighth_of_the_run_time() {
        for (large, small) in [(69, 9), (9, 9), (99, 0)] {
            let old = (0..5_000).map(|n| job(large, n)).collect();
            let new = (0..20_000).map(|n| job(small, 10_000 + n)).collect();
            let orgs = vec![org(1, 0, old), org(u32::MAX, 0, new)];
            let mut order = Order::new(orgs, SPEED, ChoiceCounts::default());
            let (mut oldest_seconds, mut total) = (0.0, 0.0);
            for _ in 0..16_000 {
                let (job, _) = order.take().unwrap();
                let seconds = SPEED.seconds(1, job.cost);
                total += seconds;
                oldest_seconds +=
                    seconds * f64::from(u8::from(job.created_at.unix_micros() < 10_000));
            }
            let share = oldest_seconds / total;
            assert!((0.1..0.13).contains(&share), "{large} {small}: {share}");
        }
    }

    #[test]
    fn jobs_are_chosen_for_free_slots_and_a_short_time_ahead() {
        let mut room = Room::new(SPEED, 128, 4, &[busy(3, 0, 0)]);
        assert_eq!(room.pause(), Duration::ZERO);
        let jobs = (0..9).map(|n| job(300, n)).collect();
        let mut order = Order::new(vec![org(1, 0, jobs)], SPEED, ChoiceCounts::default());
        // One slot is free, and 0.8 s of the next jobs are prepared.
        assert_eq!(choose(&mut order, &mut room).len(), 3);
        // Two jobs of 0.301 s keep four slots busy for 0.15 s.
        assert_eq!(room.pause().as_millis(), 37);
        assert!(order.peek().is_some());
        let [mut none, mut no_worker] =
            [(0, 4), (128, 0)].map(|(tasks, slots)| Room::new(SPEED, tasks, slots, &[]));
        for room in [&mut none, &mut no_worker] {
            assert_eq!((room.jobs_max(), choose(&mut order, room)), (0, vec![]));
        }
        assert_eq!(none.pause(), Duration::ZERO);
        assert_eq!(no_worker.pause(), PAUSE_WITHOUT_SLOTS);
        let mut notified = Room::new(SPEED, 128, 1, &[busy(1, 300, 0)]);
        assert_eq!(choose(&mut order, &mut notified), vec![]);
    }

    #[test]
    fn large_job_that_is_next_is_not_overtaken() {
        let mut room = Room::new(SPEED, 128, 2, &[busy(2, 0, 0)]);
        let mut order = Order::new(
            vec![org(1, 0, vec![job(1_000, 0), job(1, 1)])],
            SPEED,
            ChoiceCounts::default(),
        );
        assert_eq!(choose(&mut order, &mut room), vec![]);
    }

    #[test]
    fn long_jobs_occupy_at_most_half_of_the_slots() {
        let jobs = || (0..8).map(|n| job(6_000, n)).chain([job(1, 9)]).collect();
        for (slots, running_long, chosen) in [(4, 0, 2), (4, 1, 1), (4, 2, 0), (1, 0, 1)] {
            let busy = busy(running_long, 0, running_long);
            let mut room = Room::new(SPEED, 128, slots, &[busy]);
            let mut order = Order::new(vec![org(1, 0, jobs())], SPEED, ChoiceCounts::default());
            let n = choose(&mut order, &mut room).len();
            // The short job is behind them.
            assert_eq!(n - 1, chosen, "{slots} slots, {running_long} long jobs run");
        }
    }

    #[test]
    fn small_jobs_share_a_slot() {
        let mut room = Room::new(SPEED, 128, 1, &[]);
        let jobs = (0..200)
            .map(|n| WaitingJob {
                is_small: true,
                ..job(1, n)
            })
            .collect();
        let mut order = Order::new(vec![org(1, 0, jobs)], SPEED, ChoiceCounts::default());
        // 16 in the free slot, and those of the next 0.2 s, at 2 ms each.
        let chosen = choose(&mut order, &mut room).len();
        assert!(chosen.abs_diff(16 + 100) <= 1, "{chosen}");
    }
}
