//! The generated code is what comes out of the `.proto` files. `UPDATE_EXPECT=1` writes it anew.

use std::path::Path;

use prost::Message;

#[test]
fn the_generated_code_is_that_of_the_proto_files() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["envoy/service/ratelimit/v3/rls.proto"];
    let descriptors = protox::compile(files, [here.join("proto")]).unwrap();
    let out = tempfile::TempDir::new().unwrap();
    std::fs::write(out.path().join("rls.bin"), descriptors.encode_to_vec()).unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .out_dir(out.path())
        .compile_fds(descriptors)
        .unwrap();
    let committed = here.join("src/generated");
    for entry in std::fs::read_dir(out.path()).unwrap() {
        let entry = entry.unwrap();
        let (made, place) = (std::fs::read(entry.path()).unwrap(), committed.join(entry.file_name()));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::create_dir_all(&committed).unwrap();
            std::fs::write(&place, &made).unwrap();
        }
        let has = std::fs::read(&place).unwrap_or_default();
        assert!(
            has == made,
            "{} is not what the .proto files say; run with UPDATE_EXPECT=1",
            place.display()
        );
    }
}
