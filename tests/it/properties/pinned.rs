//! Cases that failed once, shrunk, each with its story.

use super::script::{Setup, Step};
use super::{Hits, run};

/// Runs a pinned case.
fn pin(setup: Setup, steps: &[Step]) {
    if let Err((index, difference)) = run(setup, steps, &mut Hits::new()) {
        panic!("step {index}: {difference}");
    }
}
