//! The simulator: the engine of deltaq for a browser. It runs a rule script and writes what each command has done.
//!
//! The interpreter is the one of the engine's tests, so the simulator prints what the tests check. A caller needs no glue code:
//!
//! 1. `script(length)` makes room for a script. The caller writes its UTF-8 bytes to the address that the function returns.
//! 2. `run()` runs it.
//! 3. `output()` and `output_length()` are the place of the result: one JSON document per line, one line per command.
//!
//! The interpreter panics at a command that it does not understand. The instance then ends with a trap. The last line of its output has the
//! message and the line of the script, and the caller needs a new instance for the next run.

#[path = "../../crates/deltaq-engine/tests/it/scripts/command.rs"]
mod command;
#[path = "../../crates/deltaq-engine/tests/it/scripts/duration.rs"]
mod duration;
#[path = "../../crates/deltaq-engine/tests/it/scripts/engine.rs"]
mod engine;
#[path = "../../crates/deltaq-engine/tests/it/scripts/order.rs"]
mod order;
#[path = "../../crates/deltaq-engine/tests/it/scripts/reply.rs"]
mod reply;
#[path = "../../crates/deltaq-engine/tests/it/scripts/script.rs"]
mod script;
#[path = "../../crates/deltaq-engine/tests/it/scripts/settings.rs"]
mod settings;

mod run;

use std::cell::{Cell, RefCell};

thread_local! {
    /// The bytes of the script.
    static SCRIPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// The lines of the result.
    static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
    /// The line of the command that runs.
    static LINE: Cell<usize> = const { Cell::new(0) };
}

/// Makes room for a script of so many bytes, and returns its address.
#[expect(unsafe_code, reason = "the page calls the function by this name, which no other function has")]
#[unsafe(no_mangle)]
pub extern "C" fn script(length: usize) -> *mut u8 {
    SCRIPT.with_borrow_mut(|script| {
        script.clear();
        script.resize(length, 0);
        script.as_mut_ptr()
    })
}

/// Runs the script.
#[expect(unsafe_code, reason = "the page calls the function by this name, which no other function has")]
#[unsafe(no_mangle)]
pub extern "C" fn run() {
    std::panic::set_hook(Box::new(|panic| {
        write(&run::panicked(LINE.get(), panic.payload_as_str().unwrap_or_default()));
    }));
    OUTPUT.with_borrow_mut(String::clear);
    let source = SCRIPT.with_borrow(|script| String::from_utf8_lossy(script).into_owned());
    run::run(&source, |line| LINE.set(line), write);
}

/// The address of the result.
#[expect(unsafe_code, reason = "the page calls the function by this name, which no other function has")]
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}

/// The bytes of the result.
#[expect(unsafe_code, reason = "the page calls the function by this name, which no other function has")]
#[unsafe(no_mangle)]
pub extern "C" fn output_length() -> usize {
    OUTPUT.with_borrow(String::len)
}

fn write(document: &serde_json::Value) {
    OUTPUT.with_borrow_mut(|output| {
        output.push_str(&document.to_string());
        output.push('\n');
    });
}
