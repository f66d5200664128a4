// SPDX-License-Identifier: Apache-2.0

//! The library's name as programs remember it: its number changes with the ABI.

const SOURCE: &str = "src/status.rs";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let source = std::fs::read_to_string(SOURCE).expect("the source is there");
    let abi = source.lines().find_map(|line| {
        line.strip_prefix("pub const TG_ABI_VERSION: u32 = ")?
            .strip_suffix(';')
    });
    let abi = abi.expect("the source says the version of the ABI");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtidegate.so.{abi}");
}
