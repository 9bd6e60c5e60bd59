//! Prints the table for `docs/threats.md`.

use assay_adversary::bench::{TRIALS, render, rows};

fn main() {
    print!("{}", render(&rows(TRIALS, 1)));
}
