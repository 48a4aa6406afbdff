//! The commands of the README, the tutorial and the how-to pages, run as a reader would run them: in a fresh folder, with the real binary.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many pages are run at the same time.
const PAGES_AT_A_TIME: usize = 6;

/// A fenced block of a page.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').unwrap_or((block, "")))
        .map(|(language, text)| Block { language, text })
        .collect()
}

/// The beginnings of commands that start the server.
const SERVES: [&str; 2] = ["deltaq serve", "cargo run --release -- serve"];
/// Blocks that need a build, install something or run all tests.
const NOT_RUN: [&str; 3] =
    ["./scripts/test.sh", "export PATH=$PWD/target/release:$PATH", "pip install ./clients/python"];
/// Starts a server on a free port instead of the one that the page uses. It takes the place of an earlier server.
const SERVE: &str = r#"
if [ -n "${server:-}" ]; then kill $server; wait $server; rm ready; fi
deltaq serve --listen 127.0.0.1:0 --metrics-listen "" --ready-file ready OPTIONS > server.log 2>&1 &
server=$!
trap 'kill $server; wait $server' EXIT
until [ -e ready ]; do kill -0 $server; sleep 0.05; done
export DELTAQ_URL=$(sed -E 's/.*"api":"([^"]+)".*/\1/' ready)
port=${DELTAQ_URL##*:}
curl() { command curl "${@//localhost:7070/$DELTAQ_URL}"; }
"#;

/// The script of a block.
fn script(number: usize, block: &Block<'_>) -> String {
    let text = block.text.trim();
    if let Some(options) = SERVES.iter().find_map(|serve| text.strip_prefix(serve)) {
        SERVE.replace("OPTIONS", options)
    } else if NOT_RUN.contains(&text) {
        String::new()
    } else {
        // A certificate names localhost, so its URL gets the port alone.
        let text = text.replace("https://localhost:7070", "https://localhost:$port");
        format!("{{\n{text}\n}} > {number}.out 2> {number}.err\n")
    }
}

/// Runs the `sh` blocks of a page in one shell that ends at the first failure, and compares the output of a block with the `text`
/// block behind it: each line must be the beginning of a line of the output.
fn run(name: &str) {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("the page is there");
    let blocks = blocks(&page);
    let binary = Path::new(env!("CARGO_BIN_EXE_deltaq")).parent().expect("a folder");
    let mut script = format!("set -euo pipefail\nPATH={}:$PATH\n", binary.display());
    for (number, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "sh") {
        script += &self::script(number, block);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env_remove("DELTAQ_TOKEN").env_remove("DELTAQ_URL");
    // It takes the place of an installed client for Python.
    shell.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/src"));
    let ended = shell.current_dir(folder.path()).stdin(Stdio::null()).output().expect("bash runs");
    let read = |name: String| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let stderr: String = (0..blocks.len()).map(|number| read(format!("{number}.err"))).collect();
    let shell_error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{name}: {stderr}{shell_error}{}", read("server.log".to_owned()));
    let mut compared = 0;
    for (number, expected) in blocks.iter().enumerate().filter(|(_, block)| block.language == "text") {
        let output = read(format!("{}.out", number - 1));
        for line in expected.text.lines() {
            // What differs from run to run is left out.
            let line = line.trim_end_matches('…');
            assert!(
                output.lines().any(|printed| printed.starts_with(line)),
                "{name}: {line:?} is not in {output:?}"
            );
        }
        compared += 1;
    }
    let has_commands = blocks.iter().any(|block| block.language == "sh");
    assert!(compared > 0 || !has_commands, "{name} shows outputs");
}

#[test]
fn the_commands_of_the_readme_work() {
    run("README.md");
}

#[test]
fn the_page_of_the_price_feed_shows_it() {
    let read =
        |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("text");
    let example = read("examples/price-feed/price_feed.py");
    let code = example.splitn(3, '\n').last().expect("code behind two comments");
    assert!(!code.starts_with('#'), "{code}");
    assert!(
        read("examples/price-feed/README.md").contains(&format!("```python\n{code}```")),
        "the page differs from the example"
    );
}

#[test]
fn the_tutorial_works() {
    run("docs/tutorial.md");
}

#[test]
fn the_how_to_pages_work() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/how-to");
    let pages: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|page| page.expect("a page").path()).collect();
    // Pages with short times need a machine that is not full of other pages.
    let next = AtomicUsize::new(0);
    let run_all = || {
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            run(&page.to_string_lossy());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..PAGES_AT_A_TIME {
            scope.spawn(run_all);
        }
    });
    assert!(pages.len() >= 7, "{pages:?}");
}
