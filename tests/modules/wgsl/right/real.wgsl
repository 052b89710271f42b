// Rows of x times rows of the weight, as the real values that they mean: one float for each invocation.
struct Block {
    depth: u32, outputs: u32, row: u32, numel: u32, in_scale: f32, in_zp: i32, biased: u32,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<uniform> block: Block;

fn signed_byte(word: u32, at: u32) -> i32 {
    return extractBits(bitcast<i32>(word), 8u * (at % 4u), 8u);
}

@compute @workgroup_size(32)
fn multiply(@builtin(global_invocation_id) id: vec3<u32>) {
    let at = id.x;
    if (at >= block.numel) {
        return;
    }
    let line = at / block.outputs;
    let output = at % block.outputs;
    var sum = 0;
    for (var k = 0u; k < block.depth; k++) {
        let place = line * block.depth + k;
        let tap = output * block.row + k;
        sum += (signed_byte(x[place / 4u], place) - block.in_zp) * signed_byte(weight[tap / 4u], tap);
    }
    var real = (f32(sum) * block.in_scale) * scales[output];
    if (block.biased != 0u) {
        real += bias[output];
    }
    y[at] = real;
}
