// SPDX-License-Identifier: Apache-2.0

//! `include/tidegate_plugin.h` in Rust, member by member. A test compiles both and compares every offset.

use std::ffi::{c_char, c_void};

/// `TIDEGATE_PLUGIN_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;

/// The name of the symbol that the gateway looks up in a plugin.
pub const ENTRY: &str = "tidegate_exporter_plugin";

/// The type of what is at [`ENTRY`].
pub type Entry = unsafe extern "C" fn() -> *const Table;

/// `TIDEGATE_TAKES_*`.
pub mod takes {
    /// Metrics as OTLP.
    pub const METRICS: u32 = 1;
    /// Traces as OTLP.
    pub const TRACES: u32 = 2;
    /// Logs as OTLP.
    pub const LOGS: u32 = 4;
    /// Events as columns.
    pub const EVENTS: u32 = 8;
}

/// `tidegate_status`.
pub mod status {
    /// All of it is where it belongs.
    pub const OK: i32 = 0;
    /// All but some items.
    pub const PARTIAL: i32 = 1;
    /// Not now.
    pub const RETRY: i32 = 2;
    /// Never.
    pub const REFUSED: i32 = 3;
    /// Never, because of something in it.
    pub const INVALID: i32 = 4;
    /// Smaller batches, please.
    pub const TOO_LARGE: i32 = 5;
}

/// `tidegate_text`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Text {
    /// UTF-8, not terminated.
    pub data: *const c_char,
    /// In bytes.
    pub length: usize,
}

/// `tidegate_bytes`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bytes {
    /// The bytes.
    pub data: *const u8,
    /// How many.
    pub length: usize,
}

/// `tidegate_attribute`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attribute {
    /// The key.
    pub key: Text,
    /// The value as text.
    pub value: Text,
}

/// `tidegate_kind`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Kind {
    /// Metric name.
    pub name: Text,
    /// The attribute `category`.
    pub category: Text,
    /// UCUM.
    pub unit: Text,
    /// Free text.
    pub description: Text,
    /// How values combine.
    pub instrument: u32,
    /// 0.
    pub reserved: u32,
    /// The attributes of the kind.
    pub attributes: *const Attribute,
    /// How many.
    pub attribute_count: usize,
}

/// `tidegate_events`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Events {
    /// The name of the source.
    pub source: Text,
    /// Attributes of every event.
    pub attributes: *const Attribute,
    /// How many.
    pub attribute_count: usize,
    /// The kinds.
    pub kinds: *const Kind,
    /// How many.
    pub kind_count: usize,
    /// Length of every column.
    pub count: usize,
    /// Index into the kinds.
    pub kind: *const u16,
    /// Whole values, or null.
    pub values_u64: *const u64,
    /// Doubles, or null.
    pub values_f64: *const f64,
    /// Nanoseconds since 1970.
    pub times_ns: *const u64,
    /// How many measurements each stands for, or null.
    pub weights: *const f64,
}

/// `tidegate_batch`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Batch {
    /// Its size as its maker knew it.
    pub struct_size: usize,
    /// 0 metrics, 1 traces, 2 logs.
    pub signal: u32,
    /// 0.
    pub reserved: u32,
    /// How many items.
    pub items: u64,
    /// OTLP, or nothing.
    pub otlp: Bytes,
    /// Events by source.
    pub events: *const Events,
    /// Of how many sources.
    pub events_count: usize,
}

/// `tidegate_setup`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Setup {
    /// Its size as its maker knew it.
    pub struct_size: usize,
    /// The exporter as configured.
    pub id: Text,
    /// The exporter's `config`.
    pub config: Text,
}

/// `tidegate_answer`.
#[derive(Debug)]
#[repr(C)]
pub struct Answer {
    /// Its size as its maker knew it.
    pub struct_size: usize,
    /// When to come again.
    pub retry_after_ns: u64,
    /// Items that were not taken.
    pub lost_items: u64,
    /// The description of the error.
    pub message: *mut c_char,
    /// Room for this number of bytes.
    pub message_capacity: usize,
    /// So many are used.
    pub message_length: usize,
}

/// `create` of the table.
pub type Create = unsafe extern "C" fn(*const Setup, *mut *mut c_void, *mut Answer) -> i32;
/// `export_batch` of the table.
pub type Export = unsafe extern "C" fn(*mut c_void, *const Batch, *mut Answer) -> i32;
/// `flush` of the table.
pub type Flush = unsafe extern "C" fn(*mut c_void, *mut Answer) -> i32;
/// `destroy` of the table.
pub type Destroy = unsafe extern "C" fn(*mut c_void);

/// `tidegate_exporter_table`. Functions may be null until they have been checked.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Table {
    /// The ABI that the plugin was built with.
    pub abi_version: u32,
    /// The payloads that it takes.
    pub takes: u32,
    /// Its size as its maker knew it.
    pub struct_size: usize,
    /// Name, terminated.
    pub name: *const c_char,
    /// Version, terminated.
    pub version: *const c_char,
    /// Makes an instance.
    pub create: Option<Create>,
    /// Exports a batch.
    pub export_batch: Option<Export>,
    /// Brings out what is held.
    pub flush: Option<Flush>,
    /// Ends an instance.
    pub destroy: Option<Destroy>,
}

// SAFETY: a table is never written to; its pointers lead to constants of the plugin.
unsafe impl Sync for Table {}
// SAFETY: as above.
unsafe impl Send for Table {}
