//! Shorter runs of `cargo chaos`.

use std::time::Duration;

use assay_tests::chaos::{self, Scale};
use assay_tests::steady::{self, OutageMin};

use crate::harness::long_test;

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
    long_test!("submits 500 jobs while connections fail");
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
    long_test!("causes four outages of Redis under load");
    let Some(ground) = crate::harness::own_ground() else {
        return;
    };
    let length = OutageMin {
        time: Duration::from_secs(5),
        jobs: 10,
    };
    let stretches = steady::without_redis(&ground, length, 15, &|stretch| {
        println!("{stretch}");
    })
    .await
    .unwrap();
    assert_eq!(stretches.len(), 5);
    for stretch in stretches {
        assert!(stretch.seen.failed.is_empty(), "{stretch}");
        // Jobs finish during the outage, not after it, and all accepted jobs succeed.
        assert!(
            stretch.finished >= 10 && stretch.seen.accepted >= 10,
            "{stretch}"
        );
        assert_eq!(stretch.not_succeeded, 0, "{stretch}");
    }
}
