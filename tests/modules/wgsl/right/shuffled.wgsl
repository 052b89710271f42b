// Channels become rows and columns; the value is requantized on the way.
struct Block {
    factor: u32, channels: u32, height: u32, width: u32, words: u32,
    in_scale: f32, in_zp: i32, inv_out_scale: f32, out_zp: i32,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> block: Block;

fn moved(at: u32) -> u32 {
    let column = at % block.width;
    let row = (at / block.width) % block.height;
    let plane = at / (block.width * block.height);
    let inside = (row % block.factor) * block.factor + column % block.factor;
    let channel = plane * block.factor * block.factor + inside;
    let rows = block.height / block.factor;
    return (channel * rows + row / block.factor) * (block.width / block.factor) + column / block.factor;
}

@compute @workgroup_size(32)
fn shuffle(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = id.x;
    if (word >= block.words) {
        return;
    }
    var packed = 0u;
    for (var lane = 0u; lane < 4u; lane++) {
        let source = moved(4u * word + lane);
        let q = extractBits(bitcast<i32>(x[source / 4u]), 8u * (source % 4u), 8u);
        let real = block.in_scale * f32(q - block.in_zp);
        let byte = clamp(i32(round(real * block.inv_out_scale)) + block.out_zp, -128, 127);
        packed |= (u32(byte) & 0xffu) << (8u * lane);
    }
    y[word] = packed;
}
