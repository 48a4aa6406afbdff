//! The other queues under the same load.
mod beanstalkd;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use deltaq::bench::{Keys, Measured, Pace, drive};
use deltaq::clock::Clock;

fn object(number: u64) -> Vec<u8> {
    let mut text = format!("{{\"key\":\"{number:012}\",\"text\":\"");
    while text.len() < 254 {
        text.push('x');
    }
    text.push_str("\"}");
    text.into_bytes()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let connections: usize = args[3].parse().unwrap();
    let batch: usize = args[4].parse().unwrap();
    let pace = Pace { warm_up: Duration::from_secs(1), measured: Duration::from_secs(4), rest: Duration::ZERO };
    let clock = Clock::system();
    let next = Arc::default();
    let mut workers = Vec::new();
    let measured: Measured = match args[1].as_str() {
        "redis" => {
            for number in 0..connections {
                let mut worker = redis::Redis::open(&args[2], number, batch, Keys::new(Arc::clone(&next), None)).await?;
                if number == 0 { worker.prepare().await?; }
                workers.push((0, worker));
            }
            drive(workers, Vec::new(), &pace, &clock, |_| {}).await?
        }
        _ => {
            let mut workers = Vec::new();
            for _ in 0..connections {
                workers.push((0, beanstalkd::Beanstalkd::open(&args[2], Keys::new(Arc::clone(&next), None)).await?));
            }
            drive(workers, Vec::new(), &pace, &clock, |_| {}).await?
        }
    };
    println!("{} {} {:.0} objects/s {:?}", args[1], batch, measured.rate(measured.objects), measured.latencies());
    Ok(())
}
