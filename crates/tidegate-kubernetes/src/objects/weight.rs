// SPDX-License-Identifier: Apache-2.0

//! The bytes that the parts of an object have on the heap.

/// The overhead of an allocation in bytes.
const ALLOCATION_BYTES: usize = 16;

pub(crate) trait Weigh {
    /// Its bytes on the heap, at most.
    fn weight(&self) -> usize;
}

impl Weigh for Box<str> {
    fn weight(&self) -> usize {
        if self.is_empty() {
            0
        } else {
            self.len() + ALLOCATION_BYTES
        }
    }
}

impl<T: Weigh> Weigh for Box<[T]> {
    fn weight(&self) -> usize {
        let parts: usize = self.iter().map(Weigh::weight).sum();
        parts + size_of_val(&**self) + if self.is_empty() { 0 } else { ALLOCATION_BYTES }
    }
}

impl<T: Weigh> Weigh for Box<T> {
    fn weight(&self) -> usize {
        (**self).weight() + size_of::<T>() + ALLOCATION_BYTES
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(0, Weigh::weight)
    }
}

impl<A: Weigh, B: Weigh> Weigh for (A, B) {
    fn weight(&self) -> usize {
        self.0.weight() + self.1.weight()
    }
}

/// The weight of a struct: that of the named fields. Other fields have nothing on the heap.
macro_rules! weigh {
    ($name:ty { $($field:ident),* $(,)? }) => {
        impl $crate::objects::Weigh for $name {
            fn weight(&self) -> usize {
                0 $(+ $crate::objects::Weigh::weight(&self.$field))*
            }
        }
    };
}
pub(crate) use weigh;
