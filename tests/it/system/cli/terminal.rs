//! Tables and the board in a terminal of tmux, at 80 and at 120 columns.

use std::process::Command;

use super::Server;
use crate::harness::waiting::until;

/// A terminal that runs one command line.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn start(server: &Server, name: &str, columns: u16, line: &str) -> Self {
        let socket = format!("deltaq-{name}-{}", std::process::id());
        let terminal = Self { socket };
        let url = server.address;
        let script = format!("DELTAQ_URL={url} {line}; echo \"[ended $?]\"; sleep 60");
        let size = columns.to_string();
        let started = terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &size,
            "-y",
            "24",
            "sh",
            "-c",
            &script,
        ]);
        assert!(started.status.success(), "{started:?}");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new("tmux");
        command
            .args(["-L", &self.socket])
            .args(arguments)
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .env("LC_ALL", "C.UTF-8");
        command.output().expect("tmux runs")
    }

    fn press(&self, key: &str) {
        assert!(self.tmux(&["send-keys", key]).status.success());
    }

    /// The screen, with the codes of colours if `with_colors`.
    fn screen(&self, with_colors: bool) -> String {
        let options: &[&str] =
            if with_colors { &["capture-pane", "-p", "-e"] } else { &["capture-pane", "-p"] };
        String::from_utf8(self.tmux(options).stdout).expect("text")
    }

    /// Waits until the screen has a text, and returns the screen.
    #[track_caller]
    fn shows(&self, text: &str) -> String {
        let mut screen = String::new();
        let begun = std::cell::Cell::new(0);
        until(text, || {
            screen = self.screen(false);
            begun.set(begun.get() + 1);
            assert!(begun.get() < 1_000, "{text:?} is not in\n{screen}");
            screen.contains(text)
        });
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.tmux(&["kill-server"]);
    }
}

fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_deltaq")
}

/// A server with a parked key that has a long error.
fn server() -> Server {
    let server = Server::in_memory();
    server.run(&["queue", "create", "prices", "max_failures=1"]).ok();
    server.run(&["add", "prices", r#"[{"key":"sku-1"},{"key":"sku-2"}]"#]).ok();
    let lease = server.run(&["pop", "prices", "-o", "name"]).ok();
    let error =
        "exit status 75: curl: (7) Failed to connect to shop.example port 443 after 3 ms: no route to host";
    server.run(&["nack", "prices", lease.trim(), "--error", error]).ok();
    server
}

#[test]
fn tables_fit_the_terminal_and_piped_tables_are_whole() {
    let server = server();
    for columns in [80, 120] {
        let line = format!("{} parked prices", binary());
        let terminal = Terminal::start(&server, &format!("table-{columns}"), columns, &line);
        let screen = terminal.shows("[ended 0]");
        let rows: Vec<&str> = screen.lines().take(3).collect();
        assert!(rows[0].starts_with("KEY    STATE   ATTEMPT"), "{screen}");
        assert!(rows[1].starts_with("sku-1  parked"), "{screen}");
        assert!(rows[1].ends_with('…') && rows[1].chars().count() <= usize::from(columns), "{screen}");
        assert_eq!(rows[2], "[ended 0]", "{screen}");
        assert!(terminal.screen(true).contains("\x1b[31mparked"), "{:?}", terminal.screen(true));
    }
    let terminal = Terminal::start(&server, "plain", 80, &format!("NO_COLOR=1 {} parked prices", binary()));
    terminal.shows("[ended 0]");
    assert!(!terminal.screen(true).contains('\x1b'), "{:?}", terminal.screen(true));
    let piped = server.run(&["parked", "prices"]).ok();
    assert!(piped.contains("no route to host") && !piped.contains('\x1b'), "{piped:?}");
}

#[test]
fn the_board_leads_to_a_parked_error_and_redrives_it() {
    let server = server();
    for columns in [80, 120] {
        let line = format!("{} top --interval 200ms", binary());
        let terminal = Terminal::start(&server, &format!("top-{columns}"), columns, &line);
        let queues = terminal.shows("prices");
        assert!(queues.contains("parked 1") && queues.contains("CHANGES/S"), "{queues}");
        assert!(queues.lines().all(|row| row.chars().count() <= usize::from(columns)), "{queues}");
        terminal.press("Enter");
        let keys = terminal.shows("sku-1");
        assert!(keys.contains(" parked 1 ") && keys.contains(" ready 1 "), "{keys}");
        terminal.press("Enter");
        let key = terminal.shows("no route to host");
        assert!(
            key.contains("appended") && key.contains("1 failures") || key.contains("state     parked"),
            "{key}"
        );
        terminal.press("Escape");
        terminal.shows("tab state");
        terminal.press("p");
        terminal.shows("is paused");
        terminal.press("p");
        terminal.shows("delivers again");
        terminal.press("q");
        terminal.shows("[ended 0]");
    }
    let terminal =
        Terminal::start(&server, "redrive", 80, &format!("NO_COLOR=1 {} top --interval 200ms", binary()));
    terminal.shows("prices");
    assert!(!terminal.screen(true).contains("\x1b[31m"), "{:?}", terminal.screen(true));
    terminal.press("r");
    terminal.shows("make all parked keys of queue prices ready?");
    terminal.press("y");
    terminal.shows("1 parked key of queue prices made ready");
    assert_eq!(server.count("prices", "parked"), 0);
    terminal.press("q");
    terminal.shows("[ended 0]");
}

#[test]
fn a_narrow_board_leaves_out_columns_and_cuts_no_number() {
    let server = server();
    for (columns, left_out) in [(60, "KNOWN"), (40, "CHANGES/S"), (28, "STATE")] {
        let line = format!("{} top --interval 200ms", binary());
        let board = Terminal::start(&server, &format!("narrow-{columns}"), columns, &line);
        let queues = board.shows("prices");
        assert!(queues.lines().all(|row| row.chars().count() <= usize::from(columns)), "{queues}");
        assert!(queues.contains("ready 1  parked 1") && queues.contains("PARKED"), "{queues}");
        assert!(!queues.contains(left_out), "{queues}");
        board.press("Enter");
        board.shows("sku-1");
        board.press("q");
        board.shows("[ended 0]");
    }
}

#[test]
fn counts_and_names_are_readable_at_80_columns() {
    let server = server();
    server.run(&["queue", "create", "integration-of-erp-and-shop"]).ok();
    server.run(&["add", "prices", r#"{"key":"sku-3"}"#, "--delay", "1h"]).ok();
    let start = |name, line: &str| Terminal::start(&server, name, 80, &format!("{} {line}", binary()));
    let tail = start("tail-80", "tail prices -n 1").shows("[ended 0]");
    assert!(tail.lines().nth(1).is_some_and(|row| row.ends_with("open")) && !tail.contains('…'), "{tail}");
    let board = start("names-80", "top");
    let queues = board.shows("integration-of-erp-a");
    assert!(queues.lines().any(|row| row.contains("prices") && row.ends_with("open")), "{queues}");
    let wait = start("wait-80", "wait prices --timeout 1m");
    wait.shows("waiting for queue prices: 1 ready, 1 delayed, 0 leased");
    server.run(&["queue", "pause", "prices"]).ok();
    wait.shows("0 leased, paused");
    server.run(&["queue", "purge", "prices", "--yes"]).ok();
    let ended = wait.shows("[ended 0]");
    assert!(!ended.contains("waiting for"), "{ended}");
}

#[test]
fn wait_goes_on_over_a_restart_of_the_server() {
    let mut server = Server::durable();
    server.run(&["add", "prices", r#"{"key":"a"}"#]).ok();
    let line = format!("{} wait prices --idle --timeout 1m", binary());
    let terminal = Terminal::start(&server, "wait-restart", 80, &line);
    terminal.shows("waiting for queue prices: 1 ready");
    server.kill();
    terminal.shows("trying");
    server.start();
    terminal.shows("waiting for queue prices: 1 ready");
    server.run(&["queue", "purge", "prices", "--yes"]).ok();
    terminal.shows("[ended 0]");
}

#[test]
fn top_needs_a_terminal() {
    let server = Server::in_memory();
    server.run(&["top"]).failed(2);
}
