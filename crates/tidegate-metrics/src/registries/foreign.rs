// SPDX-License-Identifier: Apache-2.0

//! A registry behind a C table of functions.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};
use std::sync::Arc;

use tidegate_cells::Store;

use crate::catalog::Catalog;
use crate::cells::Cells;
use crate::description::{FamilySpec, Kind};
use crate::family::{AnyFamily, Family, Made, Make};
use crate::handle::{
    Counter, CounterFn, FloatCounter, FloatCounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Instrument,
    UpDownCounter, UpDownCounterFn,
};
use crate::registry::typed;
use crate::value::FamilyValues;
use crate::{MetricsRegistry, RegisterError};

/// Text for C: UTF-8, not terminated; valid during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForeignText {
    /// First byte.
    pub bytes: *const c_char,
    /// How many bytes.
    pub length: usize,
}

/// A family for C; valid during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForeignSpec {
    /// Bytes of this struct: later versions are longer.
    pub size: usize,
    /// 0 counter, 1 fractional counter, 2 up-down counter, 3 gauge, 4 histogram, 5 exponential histogram.
    pub kind: u32,
    /// Name, with prefixes.
    pub name: ForeignText,
    /// Its description.
    pub help: ForeignText,
    /// UCUM unit.
    pub unit: ForeignText,
    /// Names of all labels.
    pub labels: *const ForeignText,
    /// How many labels.
    pub label_count: usize,
    /// Upper bounds of a histogram.
    pub bounds: *const f64,
    /// How many bounds.
    pub bound_count: usize,
}

/// The functions of a foreign registry. All of them may be called from several threads at once, must not unwind and
/// should not block: they run where the program records.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForeignVtable {
    /// Bytes of this struct as its maker knows it; functions beyond are not called.
    pub size: usize,
    /// Given to every function.
    pub context: *mut c_void,
    /// Makes a family and writes its number to `family`; anything but 0 refuses.
    pub register: Option<unsafe extern "C" fn(*mut c_void, *const ForeignSpec, family: *mut u64) -> i32>,
    /// The series of a family with these values, in the order of its labels; the same number for the same values.
    pub series: Option<unsafe extern "C" fn(*mut c_void, u64, *const ForeignText, usize) -> u64>,
    /// Adds to a counter.
    pub add_u64: Option<unsafe extern "C" fn(*mut c_void, u64, u64)>,
    /// Adds to a fractional counter or a gauge.
    pub add_f64: Option<unsafe extern "C" fn(*mut c_void, u64, f64)>,
    /// Adds to an up-down counter.
    pub add_i64: Option<unsafe extern "C" fn(*mut c_void, u64, i64)>,
    /// Sets a gauge.
    pub set: Option<unsafe extern "C" fn(*mut c_void, u64, f64)>,
    /// A histogram counts a value.
    pub observe: Option<unsafe extern "C" fn(*mut c_void, u64, f64)>,
    /// This series has ended.
    pub remove: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    /// The registry and all its handles are gone: the last call.
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// Passes everything on to a C table of functions.
///
/// Values are kept in cells as well: so they can be read back here, and composites and callbacks work as with any other
/// registry.
pub struct Foreign {
    table: Arc<Table>,
    here: Cells,
    catalog: Catalog,
}

impl Foreign {
    /// Passes on to `table`.
    ///
    /// # Safety
    /// `table.size` is not more than what `table` points to, and its functions behave as [`ForeignVtable`] says as long as `release` was not called.
    pub unsafe fn new(table: *const ForeignVtable) -> Option<Self> {
        // SAFETY: the caller's promise.
        let table = unsafe { Table::read(table) }?;
        Some(Self {
            table: Arc::new(table),
            here: Cells::new(Store::in_memory(super::options(Vec::new()))),
            catalog: Catalog::default(),
        })
    }

    /// Registers a family there and here. `kind` is its [`ForeignSpec::kind`].
    fn pass<H: Passed>(&self, spec: &FamilySpec, kind: u32) -> Result<AnyFamily, RegisterError> {
        let family = typed::<H>(self.here.register(spec)?)?;
        let there = ForeignFamily::new(&self.table, spec, kind)?;
        let maker = Passing { there, family };
        Ok(H::erase(Family::new(spec.clone(), maker)))
    }
}

impl MetricsRegistry for Foreign {
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        self.catalog.get_or_make(spec, &|| match spec.kind {
            Kind::Counter => self.pass::<Counter>(spec, 0),
            Kind::FloatCounter => self.pass::<FloatCounter>(spec, 1),
            Kind::UpDownCounter => self.pass::<UpDownCounter>(spec, 2),
            Kind::Gauge(_) => self.pass::<Gauge>(spec, 3),
            Kind::Histogram { .. } => self.pass::<Histogram>(spec, 4),
            Kind::ExponentialHistogram { .. } => self.pass::<Histogram>(spec, 5),
            Kind::Summary => Err(RegisterError::Summary(spec.name.clone())),
        })
    }

    fn gather(&self) -> Vec<FamilyValues> {
        self.catalog.gather()
    }
}

/// The table, as long as it may be called.
struct Table(ForeignVtable);

// SAFETY: the maker of the table promised that its functions may be called from any thread, several at once.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Drop for Table {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: no other reference to the table is left, so this is the last call.
            unsafe { release(self.0.context) }
        }
    }
}

impl Table {
    /// Takes the functions that its maker knew; the others are absent.
    ///
    /// # Safety
    /// As of [`Foreign::new`].
    unsafe fn read(table: *const ForeignVtable) -> Option<Self> {
        const CONTEXT: usize = offset_of!(ForeignVtable, register);
        if table.is_null() {
            return None;
        }
        // SAFETY: it is not null, and the caller promises that it is a table, which begins with its size.
        let size = unsafe { (&raw const (*table).size).read() };
        if size < CONTEXT {
            return None;
        }
        let mut own = ForeignVtable {
            size,
            context: std::ptr::null_mut(),
            register: None,
            series: None,
            add_u64: None,
            add_f64: None,
            add_i64: None,
            set: None,
            observe: None,
            remove: None,
            release: None,
        };
        let known = size.min(size_of::<ForeignVtable>());
        let known = known - known % size_of::<usize>(); // whole fields: all are as wide as a pointer
        // SAFETY: `known` bytes are in both, and an absent function is null there, which is `None` here.
        unsafe { std::ptr::copy_nonoverlapping(table.cast::<u8>(), (&raw mut own).cast::<u8>(), known) };
        Some(Self(own))
    }

    fn register(&self, spec: &FamilySpec, kind: u32) -> Result<u64, i32> {
        let labels: Vec<ForeignText> = spec.label_names().map(text).collect();
        let bounds: &[f64] = match &spec.kind {
            Kind::Histogram { bounds } => bounds,
            _ => &[],
        };
        let foreign = ForeignSpec {
            size: size_of::<ForeignSpec>(),
            kind,
            name: text(&spec.name),
            help: text(&spec.help),
            unit: text(&spec.unit),
            labels: labels.as_ptr(),
            label_count: labels.len(),
            bounds: bounds.as_ptr(),
            bound_count: bounds.len(),
        };
        let mut family = 0;
        match self.0.register {
            // SAFETY: all pointers are to live values of this function.
            Some(register) => {
                match unsafe { register(self.0.context, &raw const foreign, &raw mut family) } {
                    0 => Ok(family),
                    code => Err(code),
                }
            }
            None => Ok(0),
        }
    }

    fn series(&self, family: u64, values: &[&str]) -> u64 {
        let values: Vec<ForeignText> = values.iter().copied().map(text).collect();
        // SAFETY: the pointer is to a live value of this function.
        self.0.series.map_or(0, |series| unsafe {
            series(self.0.context, family, values.as_ptr(), values.len())
        })
    }
}

fn text(text: &str) -> ForeignText {
    ForeignText {
        bytes: text.as_ptr().cast(),
        length: text.len(),
    }
}

/// A handle there, and the same series here.
struct Both<H> {
    table: Arc<Table>,
    series: u64,
    here: H,
}

impl<H> Both<H> {
    /// Calls a function of the table with an argument.
    fn call<A>(&self, function: Option<unsafe extern "C" fn(*mut c_void, u64, A)>, argument: A) {
        if let Some(function) = function {
            // SAFETY: the table lives, and its functions take its context and the number of a series that it gave.
            unsafe { function(self.table.0.context, self.series, argument) }
        }
    }
}

/// Kinds of handle that can be passed on.
trait Passed: Instrument {
    fn pass(both: Both<Self>) -> Self;
}

macro_rules! passed {
    ($handle:ty, $behaviour:ident, $number:ty, $add:ident) => {
        impl $behaviour for Both<$handle> {
            fn add(&self, amount: $number) {
                self.here.add(amount);
                self.call(self.table.0.$add, amount);
            }

            fn local(&self) -> Option<&$handle> {
                Some(&self.here)
            }
        }

        impl Passed for $handle {
            fn pass(both: Both<Self>) -> Self {
                Self::of(Arc::new(both))
            }
        }
    };
}

passed!(Counter, CounterFn, u64, add_u64);
passed!(FloatCounter, FloatCounterFn, f64, add_f64);
passed!(UpDownCounter, UpDownCounterFn, i64, add_i64);

impl GaugeFn for Both<Gauge> {
    fn set(&self, value: f64) {
        self.here.set(value);
        self.call(self.table.0.set, value);
    }

    fn add(&self, amount: f64) {
        self.here.add(amount);
        self.call(self.table.0.add_f64, amount);
    }

    fn local(&self) -> Option<&Gauge> {
        Some(&self.here)
    }
}

impl Passed for Gauge {
    fn pass(both: Both<Self>) -> Self {
        Self::of(Arc::new(both))
    }
}

impl HistogramFn for Both<Histogram> {
    fn observe(&self, value: f64) {
        self.here.observe(value);
        self.call(self.table.0.observe, value);
    }

    fn observe_in(&self, value: f64, span: crate::SpanRef) {
        self.here.observe_in(value, span);
        self.call(self.table.0.observe, value);
    }

    fn local(&self) -> Option<&Histogram> {
        Some(&self.here)
    }
}

impl Passed for Histogram {
    fn pass(both: Both<Self>) -> Self {
        Self::of(Arc::new(both))
    }
}

/// A family there.
struct ForeignFamily {
    table: Arc<Table>,
    number: u64,
    constant: Vec<String>,
}

impl ForeignFamily {
    fn new(table: &Arc<Table>, spec: &FamilySpec, kind: u32) -> Result<Self, RegisterError> {
        let refused = |code| RegisterError::Foreign {
            name: spec.name.clone(),
            code,
        };
        Ok(Self {
            table: table.clone(),
            number: table.register(spec, kind).map_err(refused)?,
            constant: spec.constant.iter().map(|(_, value)| value.clone()).collect(),
        })
    }

    fn series(&self, values: &[&str]) -> u64 {
        let constant = self.constant.iter().map(String::as_str);
        let all: Vec<&str> = constant.chain(values.iter().copied()).collect();
        self.table.series(self.number, &all)
    }
}

/// Makes handles of both.
struct Passing<H> {
    there: ForeignFamily,
    family: Family<H>,
}

impl<H: Passed> Make<H> for Passing<H> {
    fn make(&self, values: &[&str]) -> Made<H> {
        match self.family.find(values) {
            Made::Own(here) => Made::Own(H::pass(Both {
                table: self.there.table.clone(),
                series: self.there.series(values),
                here,
            })),
            // Beyond the limit here, so there as well. Only this side keeps the shared series.
            Made::Shared(here) => Made::Shared(here),
        }
    }

    fn overflow(&self) -> Option<H> {
        self.family.overflow()
    }

    fn remove(&self, values: &[&str]) {
        self.family.remove(values);
        let table = &self.there.table.0;
        if let Some(remove) = table.remove {
            let number = self.there.series(values);
            // SAFETY: the table lives, and the number is one that it gave.
            unsafe { remove(table.context, number) }
        }
    }
}
