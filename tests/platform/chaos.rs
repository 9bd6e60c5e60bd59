//! A shorter run of `cargo chaos`.

use assay_tests::chaos::{self, Scale};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_is_done_twice_whatever_dies() {
    let Some(ground) = crate::harness::own_ground() else { return };
    let report = chaos::run(&ground, Scale::of(1000, 7), &|_| ()).await.unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.acknowledged, 1000);
}
