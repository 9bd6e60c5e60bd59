use std::sync::mpsc;

use super::*;

/// The rows that were computed, in order: the call number, and the row number.
type Log = Arc<Mutex<Vec<(usize, usize)>>>;

/// A call whose rows only record that they were computed.
struct Recorded {
    call: usize,
    log: Log,
}

impl Work for Recorded {
    fn compute(&self, row: usize, _: &mut Scratch, _: &dyn Fn() -> bool) {
        self.log.lock().unwrap().push((self.call, row));
    }
}

/// A call that occupies its thread until it is released or abandoned.
struct Blocking {
    started: mpsc::SyncSender<()>,
    release: Mutex<mpsc::Receiver<()>>,
}

impl Work for Blocking {
    fn compute(&self, _: usize, _: &mut Scratch, should_stop: &dyn Fn() -> bool) {
        self.started.send(()).unwrap();
        let release = self.release.lock().unwrap();
        while !should_stop() {
            match release.recv_timeout(Duration::from_millis(5)) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                _ => return,
            }
        }
    }
}

struct Panicking;

impl Work for Panicking {
    fn compute(&self, _: usize, _: &mut Scratch, _: &dyn Fn() -> bool) {
        panic!("expected by the test");
    }
}

fn queue(pool: &Pool, work: impl Work, rows: usize) -> Admitted {
    let permits = pool.permits(rows, 0, Priority::Request).unwrap();
    pool.queue(Arc::new(work), rows, Duration::ZERO, None, permits)
        .unwrap()
}

/// Occupies a pool's only thread. Returns the call, and the sender that releases it.
fn occupy(pool: &Pool) -> (Admitted, mpsc::Sender<()>) {
    let (started, has_started) = mpsc::sync_channel(1);
    let (release, released) = mpsc::channel();
    let work = Blocking {
        started,
        release: Mutex::new(released),
    };
    let call = queue(pool, work, 1);
    has_started.recv().unwrap();
    (call, release)
}

#[tokio::test]
async fn rows_of_calls_alternate() {
    let pool = Pool::start(1).unwrap();
    let (first, release) = occupy(&pool);
    let log = Log::default();
    let recorded = |call| Recorded {
        call,
        log: Arc::clone(&log),
    };
    let calls = [
        queue(&pool, recorded(0), 4),
        queue(&pool, recorded(1), 1),
        queue(&pool, recorded(2), 2),
    ];
    release.send(()).unwrap();
    first.finished().await;
    for call in &calls {
        call.finished().await;
    }
    let expected = [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (0, 3)];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test]
async fn all_threads_share_the_rows_of_a_call() {
    let pool = Pool::start(4).unwrap();
    let log = Log::default();
    let work = Recorded {
        call: 0,
        log: Arc::clone(&log),
    };
    let call = queue(&pool, work, 64);
    call.finished().await;
    let mut rows: Vec<usize> = log.lock().unwrap().iter().map(|(_, row)| *row).collect();
    rows.sort_unstable();
    assert_eq!(rows, (0..64).collect::<Vec<_>>());
}

#[tokio::test]
async fn panic_leaves_the_thread_alive() {
    let pool = Pool::start(1).unwrap();
    queue(&pool, Panicking, 3).finished().await;
    let log = Log::default();
    let work = Recorded {
        call: 0,
        log: Arc::clone(&log),
    };
    queue(&pool, work, 1).finished().await;
    assert_eq!(*log.lock().unwrap(), [(0, 0)]);
}

#[tokio::test]
async fn permits_are_counted_in_sequences() {
    let pool = Pool::start(1).unwrap();
    let max = pool.permits_max();
    assert_eq!(max, CALLS_PER_THREAD * ids::ROWS_MAX);
    let most = pool.permits(max - 1, 0, Priority::Request).unwrap();
    assert_eq!(
        pool.permits(2, 0, Priority::Request).err(),
        Some(NotAdmitted::Saturated)
    );
    let last = pool.permits(1, 0, Priority::Request).unwrap();
    assert_eq!(
        pool.permits(1, 0, Priority::Request).err(),
        Some(NotAdmitted::Saturated)
    );
    drop((most, last));
    assert_eq!(
        pool.permits(max, 0, Priority::Request).unwrap().count(),
        max
    );
    assert_eq!(
        pool.permits(max + 1, 0, Priority::Request).err(),
        Some(NotAdmitted::TooLarge)
    );
    // A long message needs several sequences' permits.
    assert_eq!(
        pool.permits(1, BYTES_PER_PERMIT + 1, Priority::Request)
            .unwrap()
            .count(),
        2
    );
}

#[tokio::test]
async fn jobs_use_half_of_the_permits() {
    let pool = Pool::start(1).unwrap();
    let max = pool.permits_max();
    let job_permits = |rows| pool.permits(rows, 0, Priority::Job);
    let first = job_permits(max / 2 - 1).unwrap();
    let last = job_permits(1).unwrap();
    assert_eq!(job_permits(1).err(), Some(NotAdmitted::Saturated));
    assert_eq!(pool.check(Priority::Job), Err(NotAdmitted::Saturated));
    assert_eq!(pool.check(Priority::Request), Ok(()));
    let request = pool.permits(max / 2, 0, Priority::Request).unwrap();
    drop((first, last));
    assert_eq!(pool.check(Priority::Job), Ok(()));
    // More permits than jobs have in all: the call has them alone.
    assert_eq!(job_permits(max / 2 + 1).err(), Some(NotAdmitted::Saturated));
    drop(request);
    let large = job_permits(max / 2 + 1).unwrap();
    assert_eq!(job_permits(1).err(), Some(NotAdmitted::Saturated));
    drop(large);
    assert_eq!(job_permits(max).unwrap().count(), max);
    assert_eq!(pool.shared.permits_of_jobs.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn permits_return_when_a_call_ends() {
    let pool = Pool::start(1).unwrap();
    let (call, release) = occupy(&pool);
    assert_eq!(pool.shared.permits_used.load(Ordering::Relaxed), 1);
    release.send(()).unwrap();
    call.finished().await;
    drop(call);
    assert_eq!(pool.shared.permits_used.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn abandoned_call_stops_and_leaves_the_queue() {
    let pool = Pool::start(1).unwrap();
    let (blocking, _release) = occupy(&pool);
    let log = Log::default();
    let recorded = |call| Recorded {
        call,
        log: Arc::clone(&log),
    };
    let abandoned = queue(&pool, recorded(0), 3);
    let other = queue(&pool, recorded(1), 1);
    drop(abandoned);
    assert_eq!(pool.shared.lock().calls.len(), 1);
    // The thread is free only if the computation notices that its call was dropped.
    drop(blocking);
    other.finished().await;
    assert_eq!(*log.lock().unwrap(), [(1, 0)]);
}

#[tokio::test]
async fn calls_that_would_be_late_are_not_admitted() {
    let pool = Pool::start(1).unwrap();
    let (_blocking, _release) = occupy(&pool);
    let log = Log::default();
    let work = || {
        Arc::new(Recorded {
            call: 0,
            log: Arc::clone(&log),
        })
    };
    let second = Duration::from_secs(1);
    let deadline = |seconds: u32| Some(Instant::now() + second * seconds);
    let permits = |rows| pool.permits(rows, 0, Priority::Request).unwrap();
    // An empty queue admits everything: otherwise a wrong estimate would refuse calls forever.
    let first = pool.queue(work(), 64, second, deadline(1), permits(64));
    assert!(first.is_ok());
    // Calls progress at the same rate: ten rows before it and its own ten take 20 s.
    let late = pool.queue(work(), 10, second, deadline(10), permits(10));
    assert_eq!(late.err(), Some(NotAdmitted::Saturated));
    let used = pool.shared.permits_used.load(Ordering::Relaxed);
    assert_eq!(used, 1 + 64);
    assert!(
        pool.queue(work(), 10, second, deadline(1_000), permits(10))
            .is_ok()
    );
    assert!(pool.queue(work(), 10, second, None, permits(10)).is_ok());
}

#[tokio::test]
async fn threads_end_with_the_pool() {
    let pool = Pool::start(2).unwrap();
    let shared = Arc::downgrade(&pool.shared);
    drop(pool);
    while shared.strong_count() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
