#![no_main]

#[global_allocator]
static ALLOCATOR: hyloc_fuzz::Bounded = hyloc_fuzz::Bounded;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hyloc_fuzz::bounded(data, hyloc_fuzz::echo_file));
