"""CompressionCallback: writes the size of the buffer into the log of a training."""

from obscodec.arguments import as_count
from stable_baselines3.common.callbacks import BaseCallback

from obscodec_sb3.base import CompressedBuffer


class CompressionCallback(BaseCallback):
    """Records the size of the buffer and the time of its samples, for TensorBoard and other loggers.

    ``buffer/ratio``, ``buffer/bytes``, ``buffer/projected_bytes``, which the full buffer will take, and
    ``buffer/sample_ms``, the mean time since the last record.

    Args:
        every: the number of calls of ``env.step()`` between two records, as ``save_freq`` of SB3's CheckpointCallback:
            with ``n_envs`` environments, each call is ``n_envs`` steps. SB3 decides when it prints them.

    Raises:
        TypeError: the algorithm has no compressed buffer; when training starts.
        DTypeError: ``every`` is no number.
        ShapeError: it is less than 1.

    Example:
        >>> from stable_baselines3 import DQN
        >>> from obscodec_sb3 import CompressedReplayBuffer
        >>> model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=CompressedReplayBuffer)
        >>> model.learn(300, callback=CompressionCallback(every=100)).num_timesteps
        300
    """

    def __init__(self, every: int = 1000) -> None:
        super().__init__()
        self._every = as_count("every", every)

    def _on_training_start(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None) or getattr(self.model, "rollout_buffer", None)
        if not isinstance(buffer, CompressedBuffer):
            raise TypeError("the algorithm has no compressed buffer: give it one, such as CompressedReplayBuffer")
        self._buffer, self._before = buffer, buffer.stats()

    def _on_step(self) -> bool:
        if self.n_calls % self._every == 0:
            stats = self._buffer.stats()
            self.logger.record("buffer/ratio", stats.ratio)
            self.logger.record("buffer/bytes", stats.total_bytes)
            if stats.projected_bytes is not None:
                self.logger.record("buffer/projected_bytes", stats.projected_bytes)
            if n := stats.n_samples - self._before.n_samples:
                self.logger.record("buffer/sample_ms", 1000 * (stats.sample_s - self._before.sample_s) / n)
            self._before = stats
        return True
