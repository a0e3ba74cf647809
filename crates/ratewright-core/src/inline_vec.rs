//! A list that needs no allocation while it is short.
//!
//! Each access first tests whether the list is long; cold functions handle long lists. Without that branch, each access would
//! load the pointer of a long list. In a short list these bytes are the first element, which has just been written in pieces,
//! so the processor would wait.

use std::fmt;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

/// A list whose first four elements need no allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct InlineVec<T>(SmallVec<[T; 4]>);

/// The elements of an [`InlineVec`].
pub struct IntoIter<T>(smallvec::IntoIter<[T; 4]>);

impl<T> InlineVec<T> {
    /// An empty list.
    #[inline(always)]
    pub fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Adds an element at the end.
    #[inline(always)]
    pub fn push(&mut self, element: T) {
        if self.0.spilled() { push_spilled(&mut self.0, element) } else { self.0.push(element) }
    }

    /// Removes and returns the element at this index.
    ///
    /// # Panics
    /// If the list is shorter.
    pub fn remove(&mut self, number: usize) -> T {
        self.0.remove(number)
    }

    /// Removes all elements.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps the first `n` elements.
    #[inline]
    pub fn truncate(&mut self, n: usize) {
        self.0.truncate(n);
    }
}

#[cold]
fn push_spilled<T>(elements: &mut SmallVec<[T; 4]>, element: T) {
    elements.push(element);
}

#[cold]
fn spilled<T>(elements: &SmallVec<[T; 4]>) -> &[T] {
    elements
}

#[cold]
fn spilled_mut<T>(elements: &mut SmallVec<[T; 4]>) -> &mut [T] {
    elements
}

impl<T> Default for InlineVec<T> {
    #[inline(always)]
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for InlineVec<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        if self.0.spilled() { spilled(&self.0) } else { &self.0 }
    }
}

impl<T> DerefMut for InlineVec<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        if self.0.spilled() { spilled_mut(&mut self.0) } else { &mut self.0 }
    }
}

impl<T> Extend<T> for InlineVec<T> {
    #[inline(always)]
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        self.0.extend(elements);
    }
}

impl<T> FromIterator<T> for InlineVec<T> {
    #[inline(always)]
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self(elements.into_iter().collect())
    }
}

impl<T> IntoIterator for InlineVec<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    #[inline(always)]
    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self.0.into_iter())
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    #[inline(always)]
    fn next(&mut self) -> Option<T> {
        self.0.next()
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> DoubleEndedIterator for IntoIter<T> {
    fn next_back(&mut self) -> Option<T> {
        self.0.next_back()
    }
}

impl<T> ExactSizeIterator for IntoIter<T> {}

impl<T> fmt::Debug for IntoIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").finish_non_exhaustive()
    }
}

impl<'a, T> IntoIterator for &'a InlineVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    #[inline(always)]
    fn into_iter(self) -> Self::IntoIter {
        self.deref().iter()
    }
}

impl<'a, T> IntoIterator for &'a mut InlineVec<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    #[inline(always)]
    fn into_iter(self) -> Self::IntoIter {
        self.deref_mut().iter_mut()
    }
}

impl<T: fmt::Debug> fmt::Debug for InlineVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Also when it no longer fits inline.
        #[test]
        fn it_behaves_as_a_vec(steps in prop::collection::vec((0u8..8, 0usize..12), 0..40)) {
            let (mut list, mut vec) = (InlineVec::new(), Vec::new());
            for (step, number) in steps {
                match step {
                    0..=3 => {
                        list.push(number);
                        vec.push(number);
                    }
                    4 if number < vec.len() => prop_assert_eq!(list.remove(number), vec.remove(number)),
                    5 => {
                        list.truncate(number);
                        vec.truncate(number);
                    }
                    6 => {
                        list.iter_mut().for_each(|element| *element += number);
                        vec.iter_mut().for_each(|element| *element += number);
                    }
                    _ => {
                        list.extend([number, number]);
                        vec.extend([number, number]);
                    }
                }
                prop_assert_eq!(&*list, &*vec);
                prop_assert!((&list).into_iter().eq(&vec));
            }
            prop_assert!(list.into_iter().eq(vec));
        }
    }
}
