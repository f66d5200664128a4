// SPDX-License-Identifier: Apache-2.0

//! Items at fixed places.

/// Places of things that go are given to the next ones.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(thing);
                at
            }
            None => {
                self.slots.push(Some(thing));
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let thing = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(thing)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot.take_if(|thing| !keep(thing)).is_some() {
                self.free.push(at as u32);
            }
        }
    }

    /// Gives back the places when nothing is left.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = (0u32..).zip(&self.slots);
        slots.filter_map(|(at, slot)| Some((at, slot.as_ref()?)))
    }

    /// The result of `of` for each item, by place; the default at a free place.
    pub(super) fn by_slot<R: Default>(&self, of: impl Fn(&T) -> R) -> Vec<R> {
        let of = |slot: &Option<T>| slot.as_ref().map(&of).unwrap_or_default();
        self.slots.iter().map(of).collect()
    }
}
