//! The Kubernetes wire against recordings of a real API server, whose clients act on what is compared here.
//!
//! The recorded requests run against a server in this process. Every difference has to be in [`meant`]'s table, and
//! every row of the table has to be a difference: the documentation shows that table.

mod answer;
mod compare;
mod meant;
mod recording;
mod replay;
mod symbols;

use self::compare::Difference;
use self::meant::Coverage;
use self::recording::Step;
use self::replay::{Target, replay};

/// Runs scenarios at the same time, since most of them wait for the ends of watches.
async fn differences(scenarios: Vec<Vec<Step>>, target: impl AsyncFn(&[Step]) -> Target) -> Vec<Difference> {
    let mut replays = Vec::new();
    for steps in scenarios {
        let target = target(&steps).await;
        replays.push(crate::harness::spawn(replay(steps, target)));
    }
    let mut differences = Vec::new();
    for replay in replays {
        differences.extend(replay.await.expect("a scenario runs to its end"));
    }
    differences
}

#[tokio::test]
async fn a_server_answers_as_a_cluster_but_for_what_is_meant() {
    let differences = differences(recording::scenarios(), async |steps| replay::server(steps).await).await;
    let mut coverage = Coverage::default();
    let unexpected: Vec<String> = differences
        .iter()
        .filter(|difference| !coverage.explains(difference))
        .map(Difference::to_string)
        .collect();
    let unused = coverage.unused();
    assert!(
        unexpected.is_empty() && unused.is_empty(),
        "{} differences that are not meant:\n{}\n{} rows of the table that are no differences:\n{}",
        unexpected.len(),
        unexpected.join("\n"),
        unused.len(),
        unused.join("\n")
    );
}

#[tokio::test]
async fn a_server_that_answers_as_recorded_has_no_differences() {
    let scenarios = recording::scenarios();
    assert!(scenarios.len() > 10, "{}", scenarios.len());
    let differences = differences(scenarios, async |_| Target::recording()).await;
    let differences: Vec<String> = differences.iter().map(Difference::to_string).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
