// The same words in another buffer.
struct Block { words: u32 }

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> block: Block;

@compute @workgroup_size(32)
fn copy(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < block.words) {
        y[id.x] = x[id.x];
    }
}
