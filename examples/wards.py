"""A Faust app of one's own that asks stream-tpp to watch its events, and acts on the alerts.

    MODEL=models/icu KAFKA_BOOTSTRAP_SERVERS=localhost:9092 python examples/wards.py worker --without-web

It reads events such as {"entity": "bed-12", "time": 1700000000, "type": "tachycardia"} from the topic vitals-events.
"""

import os

import faust

import stream_tpp

app = faust.App(
    "wards",
    broker=f"kafka://{os.environ.get('KAFKA_BOOTSTRAP_SERVERS', 'localhost:9092')}",
    topic_partitions=2,
    topic_disable_leader=True,
    # Back at work seconds after a restart; Faust's own timeouts would take about a minute.
    broker_session_timeout=6.0,
    broker_rebalance_timeout=6.0,
    broker_heartbeat_interval=1.0,
)

tpp = stream_tpp.plug(
    app,
    events="vitals-events",
    model=os.environ.get("MODEL", "models/icu"),
    rules=[stream_tpp.Rule(alarm={"code_blue"}, horizon=3600, threshold=0.2)],
)


@app.agent(tpp.alerts)
async def page(alerts: faust.StreamT[dict]) -> None:
    async for alert in alerts:
        print(f"{alert['entity']}: {alert['rule']} {alert['state']} (score {alert['score']:.2f})", flush=True)


if __name__ == "__main__":
    app.main()
