//! Simulations of the queue with virtual time: the order and the room are those of the dispatcher,
//! and jobs take exactly their estimated run time.

use std::collections::{BTreeMap, HashMap, VecDeque};

use assay_core::model::queue::Speed;
use assay_core::store::queue::{BusyJobs, WaitingJob, WaitingOrg};
use assay_core::{JobId, OrgId, Timestamp};

use super::order::{ChoiceCounts, Order, Room, choose};

const SPEED: Speed = Speed {
    items_per_second: 1_000_000.0,
    overhead_seconds: 0.002,
};

/// The longest time between two rounds, in seconds.
const TICK: f64 = 0.05;

/// The time for which a job counts against its organization, in seconds.
const COUNTED: f64 = 60.0;

/// An organization that submits jobs.
#[derive(Clone, Copy)]
struct Submitter {
    weight: u32,
    /// Each job's cost, in items.
    cost: i64,
    /// The number of jobs that are queued or running at any time.
    active: usize,
}

/// A finished job.
struct Finished {
    org: usize,
    cost: i64,
    waited: f64,
}

struct Job {
    org: usize,
    created: f64,
    waiting: WaitingJob,
}

/// All submitters' jobs, in virtual time.
struct Simulation<'s> {
    submitters: &'s [Submitter],
    ids: Vec<OrgId>,
    slots: u32,
    now: f64,
    n_created: i64,
    /// Each submitter's active job count.
    active: Vec<usize>,
    waiting: Vec<VecDeque<Job>>,
    notified: VecDeque<Job>,
    /// Running jobs, with their end and start.
    running: Vec<(f64, f64, Job)>,
    /// Finished jobs' starts and costs.
    recent: Vec<(f64, usize, i64)>,
    finished: Vec<Finished>,
    /// The seconds for which slots were occupied.
    occupied: f64,
    counts: ChoiceCounts,
}

impl<'s> Simulation<'s> {
    fn new(submitters: &'s [Submitter], slots: u32) -> Self {
        Self {
            submitters,
            ids: submitters
                .iter()
                .map(|_| OrgId::random().unwrap())
                .collect(),
            slots,
            now: 0.0,
            n_created: 0,
            active: vec![0; submitters.len()],
            waiting: submitters.iter().map(|_| VecDeque::new()).collect(),
            notified: VecDeque::new(),
            running: Vec::new(),
            recent: Vec::new(),
            finished: Vec::new(),
            occupied: 0.0,
            counts: ChoiceCounts::default(),
        }
    }

    /// Submits jobs until each submitter has its active ones.
    fn submit(&mut self) {
        for (org, submitter) in self.submitters.iter().enumerate() {
            while self.active[org] < submitter.active {
                self.active[org] += 1;
                self.n_created += 1;
                self.waiting[org].push_back(Job {
                    org,
                    created: self.now,
                    waiting: WaitingJob {
                        job_id: JobId::random().unwrap(),
                        cost: submitter.cost,
                        created_at: Timestamp::from_unix_micros(self.n_created).unwrap(),
                        is_small: false,
                    },
                });
            }
        }
    }

    /// Returns the busy submitters' jobs.
    fn busy(&self) -> BTreeMap<usize, BusyJobs> {
        let mut busy: BTreeMap<usize, BusyJobs> = BTreeMap::new();
        let long = |job: &Job| i64::from(job.waiting.cost > SPEED.cost_of_short_jobs_max());
        let mut count = |job: &Job, is_notified: bool| {
            let org = busy.entry(job.org).or_insert_with(|| BusyJobs {
                org_id: self.ids[job.org].clone(),
                cost: 0,
                remaining_cost: 0,
                notified_cost: 0,
                running_small: 0,
                running_large: 0,
                notified_small: 0,
                notified_large: 0,
                long: 0,
            });
            org.cost += job.waiting.cost;
            org.long += long(job);
            if is_notified {
                org.notified_large += 1;
                org.notified_cost += job.waiting.cost;
            } else {
                org.running_large += 1;
            }
        };
        self.running.iter().for_each(|(.., job)| count(job, false));
        self.notified.iter().for_each(|job| count(job, true));
        busy
    }

    /// Notifies workers, as one dispatcher round does.
    fn dispatch(&mut self) {
        let counted_from = self.now - COUNTED;
        self.recent.retain(|(started, ..)| *started > counted_from);
        let busy = self.busy();
        let mut costs: HashMap<usize, i64> = HashMap::new();
        for (_, org, cost) in &self.recent {
            *costs.entry(*org).or_default() += cost;
        }
        for (org, jobs) in &busy {
            *costs.entry(*org).or_default() += jobs.cost;
        }
        let busy: Vec<_> = busy.into_values().collect();
        let mut room = Room::new(SPEED, 128, self.slots, &busy);
        let candidates = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, jobs)| !jobs.is_empty());
        let orgs = candidates
            .map(|(org, jobs)| WaitingOrg {
                org_id: self.ids[org].clone(),
                weight: self.submitters[org].weight,
                active_cost: costs.get(&org).copied().unwrap_or(0),
                jobs: jobs
                    .iter()
                    .take(50)
                    .map(|job| job.waiting.clone())
                    .collect(),
            })
            .collect();
        let mut order = Order::new(orgs, SPEED, self.counts);
        for (_, WaitingJob { job_id, .. }) in choose(&mut order, &mut room) {
            let place = self.waiting.iter().enumerate().find_map(|(org, jobs)| {
                let at = jobs
                    .iter()
                    .take(50)
                    .position(|job| job.waiting.job_id == job_id)?;
                Some((org, at))
            });
            let (org, at) = place.unwrap();
            self.notified.extend(self.waiting[org].remove(at));
        }
        self.counts = order.counts();
    }

    /// Starts notified jobs whenever a slot is free, until the next round.
    fn work(&mut self) {
        let end = self.now + TICK;
        loop {
            while self.running.len() < self.slots as usize
                && let Some(job) = self.notified.pop_front()
            {
                let ends = self.now + SPEED.seconds(1, job.waiting.cost);
                self.running.push((ends, self.now, job));
            }
            let first = self
                .running
                .iter()
                .enumerate()
                .min_by(|a, b| a.1.0.total_cmp(&b.1.0))
                .map(|(index, (ends, ..))| (index, *ends))
                .filter(|(_, ends)| *ends <= end);
            let until = first.map_or(end, |(_, ends)| ends);
            self.occupied += self.running.len() as f64 * (until - self.now);
            self.now = until;
            let Some((index, _)) = first else { return };
            let (_, started, job) = self.running.swap_remove(index);
            self.active[job.org] -= 1;
            self.recent.push((started, job.org, job.waiting.cost));
            self.finished.push(Finished {
                org: job.org,
                cost: job.waiting.cost,
                waited: started - job.created,
            });
            if self.notified.is_empty() {
                // A job's end starts a round.
                return;
            }
        }
    }
}

/// Runs the submitters for some seconds. Returns the finished jobs, and the share of the time for
/// which slots were occupied.
fn run(submitters: &[Submitter], slots: u32, seconds: f64) -> (Vec<Finished>, f64) {
    let mut simulation = Simulation::new(submitters, slots);
    while simulation.now < seconds {
        simulation.submit();
        simulation.dispatch();
        simulation.work();
    }
    let share = simulation.occupied / (f64::from(slots) * simulation.now);
    (simulation.finished, share)
}

#[test]
fn flooding_organization_at_most_doubles_the_wait_of_others() {
    // The jobs of 20 s are long ones. Unoptimized, a minute of many shorter jobs takes half a minute.
    let mut tried = vec![(2, 20_000), (16, 20_000)];
    if std::env::var_os("TEST_QUEUE").is_some() {
        tried.extend([(2, 2_000), (16, 4_000)]);
    }
    for (slots, cost) in tried {
        let other = Submitter {
            weight: 1,
            cost,
            active: 10,
        };
        let flood = Submitter {
            cost: 1_000 * cost,
            active: 50,
            ..other
        };
        let p95 = |first: Submitter| {
            let submitters: Vec<_> = std::iter::once(first).chain([other; 19]).collect();
            let (finished, _) = run(&submitters, slots, 70.0);
            let other_jobs = finished.iter().filter(|job| job.org > 0);
            let mut waits: Vec<f64> = other_jobs.map(|job| job.waited).collect();
            waits.sort_by(f64::total_cmp);
            waits[waits.len() * 95 / 100]
        };
        let [without, with] = [other, flood].map(p95);
        println!(
            "{slots} slots, jobs of {cost} items: 95 % wait at most {without:.3} s, with the flood {with:.3} s"
        );
        assert!(
            with <= 2.0 * without,
            "{slots} slots, {cost} items: {without} {with}"
        );
    }
}

#[test]
fn finished_cost_follows_the_weights() {
    let submitters = [1, 2, 4].map(|weight| Submitter {
        weight,
        cost: 100_000,
        active: 20,
    });
    let (finished, _) = run(&submitters, 4, 200.0);
    let cost = |org| {
        let org_jobs = finished.iter().filter(|job| job.org == org);
        org_jobs.map(|job| job.cost).sum::<i64>() as f64
    };
    let unit = (cost(0) + cost(1) + cost(2)) / 7.0;
    let shares = [0, 1, 2].map(|org| cost(org) / unit);
    println!("shares of the cost for the weights 1, 2, 4: {shares:.2?}");
    for (share, weight) in shares.into_iter().zip([1.0, 2.0, 4.0]) {
        assert!((share / weight - 1.0).abs() < 0.1, "{shares:?}");
    }
}

#[test]
fn large_job_starts_under_permanent_load() {
    let small = (0..5).map(|_| Submitter {
        weight: 4,
        cost: 20_000,
        active: 20,
    });
    let large = Submitter {
        weight: 1,
        cost: 10_000_000,
        active: 1,
    };
    let submitters: Vec<_> = std::iter::once(large).chain(small).collect();
    for slots in [1, 2, 16] {
        let (finished, _) = run(&submitters, slots, 30.0);
        let first = finished.iter().find(|job| job.org == 0).unwrap();
        println!(
            "{slots} slots: the job of ten million items waited {:.2} s",
            first.waited
        );
        assert!(first.waited < 10.0);
    }
}

#[test]
fn large_job_starts_under_floods_of_long_jobs() {
    let flood = |weight, cost| Submitter {
        weight,
        cost,
        active: 50,
    };
    let small = Submitter {
        active: 10,
        ..flood(1, 20_000)
    };
    let large = Submitter {
        active: 1,
        ..flood(1, 150_000_000)
    };
    // Long jobs, which occupy all slots that such jobs may, and those that are hardly shorter.
    let floods = [flood(4, 6_000_000), flood(1, 4_900_000)];
    let submitters = [floods[0], floods[1], small, small, large];
    let (finished, _) = run(&submitters, 16, 400.0);
    let job = finished.iter().find(|job| job.org == 4).unwrap();
    println!("the job of 150 s waited {:.0} s", job.waited);
    // By their age, jobs get an eighth of the run time: 50 jobs of 6 s, in 16 slots.
    assert!(
        job.waited < 50.0 * 6.0 * 8.0 / 16.0 + 10.0,
        "{}",
        job.waited
    );
}

#[test]
fn single_organization_uses_all_slots() {
    for (cost, slots) in [
        (10_000, 4),
        (100_000, 1),
        (300_000, 2),
        (1_000_000, 4),
        (4_900_000, 16),
    ] {
        let alone = Submitter {
            weight: 1,
            cost,
            active: 100,
        };
        let (_, occupied) = run(&[alone], slots, 60.0);
        println!(
            "{slots} slots, jobs of {:.3} s: {occupied:.3} of the time occupied",
            SPEED.seconds(1, cost)
        );
        assert!(occupied >= 0.95, "{cost} {slots}: {occupied}");
    }
}
