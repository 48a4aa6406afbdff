//! What an operator asks: what it costs to see and to guard (`cost`), the outcome of more load than the server
//! can take (`flood`), and of thousands of connections that are slow on purpose (`slow`).
//!
//! Names of scenarios as arguments run only those. It prints what it measured; no measured time makes it fail.

#![expect(clippy::expect_used, reason = "a benchmark that can't go on stops, and says what it expected")]

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
