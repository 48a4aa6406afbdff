//! Tests that need programs of the machine, such as PostgreSQL, Chromium and nginx. scripts/setup.sh lists the programs.

mod browser;
pub(crate) mod cli;
mod clients;
mod console;
mod documents;
mod example;
mod offline;
mod package;
pub(crate) mod postgres;
mod process;
mod prometheus;
mod proxied;
mod reflect;
mod series;
