//! Commands on stdin, and reports on stdout.

use std::io::{BufRead as _, Write as _};

use serde_json::Value;
use tokio::sync::mpsc;

/// The commands of stdin. The channel ends with stdin.
pub(crate) fn read() -> mpsc::Receiver<Value> {
    let (sender, receiver) = mpsc::channel(1);
    // A read of stdin can't be cancelled, so it has a thread that ends with the process.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(command) => {
                    if sender.blocking_send(command).is_err() {
                        return;
                    }
                }
                Err(error) => eprintln!("the command {line:?} is not JSON: {error}"),
            }
        }
    });
    receiver
}

/// Writes a report.
pub(crate) fn report(report: &Value) {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{report}").and_then(|()| stdout.flush());
    if let Err(error) = written {
        eprintln!("can't write a report: {error}");
    }
}
