//! Operational behaviour: the cost of metrics, tokens and logs (`cost`), an overload (`flood`), and thousands of connections that
//! are slow on purpose (`slow`).
//!
//! Arguments select scenarios. The benchmark prints its measurements and never fails because of them.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

mod cost;
mod overload;
#[path = "../spawned.rs"]
mod spawned;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if runs("cost") {
        cost::run();
    }
    if runs("flood") {
        overload::run(overload::flood());
    }
    if runs("slow") {
        overload::run(overload::slow());
    }
}
