//! A shorter run of `cargo chaos`.

use std::sync::Arc;

use assay_tests::chaos::{self, Scale};
use assay_tests::servers::Servers;
use assay_tests::stack::Ground;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_is_done_twice_whatever_dies() {
    // Servers of its own: they are restarted.
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    if servers.redis_pid().is_none() || servers.postgres_pid().is_none() {
        return eprintln!("SKIPPED: the servers named by DATABASE_URL and REDIS_URL are not ours to stop");
    }
    let ground = Arc::new(Ground::new(servers, crate::harness::ground().binaries.clone()));
    let report = chaos::run(&ground, Scale::of(1000, 7), &|_| ()).await.unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.acknowledged, 1000);
}
