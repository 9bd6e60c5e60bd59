//! Shorter runs of `cargo chaos`.

use std::time::Duration;

use assay_tests::chaos::{self, Scale};
use assay_tests::steady::{self, Away};

#[tokio::test(flavor = "multi_thread")]
async fn crashes_lose_and_repeat_nothing() {
    let Some(ground) = crate::harness::own_ground() else {
        return;
    };
    let report = chaos::run(&ground, Scale::of(1000, 7), &|_| ())
        .await
        .unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.acknowledged, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn network_faults_lose_and_repeat_nothing() {
    let Some(ground) = crate::harness::own_ground() else {
        return;
    };
    let report = chaos::run(&ground, Scale::network(500, 7), &|_| ())
        .await
        .unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.acknowledged, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_fails_no_request() {
    let Some(ground) = crate::harness::own_ground() else {
        return;
    };
    let report = steady::restarts(&ground, 2, 15, &|_| ()).await.unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn load_without_redis_fails_no_request() {
    let Some(ground) = crate::harness::own_ground() else {
        return;
    };
    let stretches = steady::without_redis(&ground, Duration::from_secs(5), 15, &|stretch| {
        println!("{stretch}");
    })
    .await
    .unwrap();
    assert_eq!(stretches.len(), 5);
    for stretch in stretches {
        assert!(stretch.seen.failed.is_empty(), "{stretch}");
        assert!(
            stretch.seen.times.len() > 50 && stretch.drained < Duration::from_secs(30),
            "{stretch}"
        );
        // The bound detects a standstill, not a low speed: a quarter of the requests are jobs.
        assert!(
            stretch.away == Away::Not || stretch.jobs_per_second > 1.0,
            "{stretch}"
        );
    }
}
